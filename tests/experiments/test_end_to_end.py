"""The whole path on a small scale: PsCo trained without labels beats raw pixels."""

from __future__ import annotations

import numpy as np

import psco
from psco.data.sets.glyphs import draw_glyphs
from psco.evaluation.embed import Encoder


def glyphs(alphabets: range) -> psco.ImageSet:
    images = draw_glyphs(alphabets, seed=5, characters=20)
    classes = tuple(str(number) for number in range(len(images)))
    labels = np.repeat(np.arange(len(images)), images.shape[1])
    return psco.ImageSet(images.reshape(-1, 28, 28, 1), labels, classes)


def test_half_a_minute_of_training_beats_raw_pixels_and_the_untrained_network_on_unseen_classes(
    tmp_path,
):
    run = psco.pretrain(
        glyphs(range(8)),
        out=tmp_path / "run",
        recipe="glyphs",
        steps=150,
        overrides=[
            "train.batch_size=128",
            "heads.hidden=256",
            "method.queue_size=1024",
            "backbone.width=32",
            "train.warmup_steps=10",
        ],
        progress=False,
    )
    unseen = glyphs(range(8, 11))

    def accuracy(model, rule="prototype") -> float:
        return psco.evaluate(model, unseen, ways=20, shots=1, tasks=200, rule=rule).mean

    pixels = Encoder.untrained(psco.load_recipe("glyphs", ["method.name=pixels"]))
    trained = accuracy(psco.load(tmp_path / "run"))
    assert trained > accuracy(pixels) + 10
    assert trained > accuracy(Encoder.untrained(run.recipe), "class-mean") + 5
    assert run.metrics[-1]["purity"] > run.metrics[0]["purity"]
