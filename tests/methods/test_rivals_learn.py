"""A short training on the glyphs must leave raw pixels behind, where half a minute is enough.

Meta-GMVAE and the reconstruction of Meta-SVEBM learn generative models of whole sets and need more:
docs/rivals.md says how much. That they learn is tested in tests/experiments/test_suite.py.
"""

from __future__ import annotations

import psco
from psco.training.trainer import Trainer

SMALL = [
    "method={name: lasium-protonets, ways: 20, tasks: 1, generator_width: 16}",
    "method.generator_steps=100",
    "backbone.width=32",
    "train.steps=80",
    "train.purity=false",
]


def test_lasium_beats_raw_pixels_by_five_points_at_20_way_1_shot(tmp_path):
    train, test = (psco.load_dataset("glyphs", split) for split in ("train", "test"))
    quiet = {"progress": False, "measure_quality": False}
    Trainer(train, tmp_path / "run", "glyphs", SMALL, **quiet).run()
    pixels = psco.Encoder.untrained(psco.load_recipe("glyphs", ["method.name=pixels"]))
    runs = (psco.load(tmp_path / "run"), pixels)
    ours, theirs = (psco.evaluate(run, test, ways=20, tasks=60).mean for run in runs)
    assert ours > theirs + 5
