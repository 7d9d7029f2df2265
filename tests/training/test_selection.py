"""The best model on validation tasks: chosen right, kept over interruptions, and refused early."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from torch import nn

import psco
from psco.classifier.validation import validator
from psco.methods import Method
from psco.networks import Networks
from psco.recipes.recipe import load_recipe
from psco.training.checkpoint import load_resume
from psco.training.selection import BestModel

pytestmark = pytest.mark.usefixtures("quick_calibration")
SELECT = ["train.select=validation", "train.select_steps=3", "train.select_tasks=8"]


def train(images, out, small, **options):
    changes = [*small, *SELECT, *options.pop("changes", [])]
    options = {"steps": 12, "recipe": "glyphs", "method": "protonets", "seed": 3, **options}
    return psco.pretrain(images, out=out, overrides=changes, progress=False, **options)


def test_the_first_of_the_best_weights_is_kept():
    method = Method(Networks(nn.Linear(2, 1, bias=False), width=1))
    scores = iter([50.0, 70.0, 60.0, 70.0])
    best = BestModel(method, lambda _: next(scores))
    for step in range(4):
        nn.init.constant_(method.backbone.weight, step)
        best.offer(method, step)
    assert (best.step, best.score, best.latest) == (1, 70.0, 70.0)
    assert best.method.backbone.weight.eq(1).all()


def test_the_saved_model_is_the_best_one_of_all_validations(few_glyphs, small, tmp_path):
    run = train(few_glyphs, tmp_path / "run", small, validation=few_glyphs)
    state = load_resume(run.folder)
    seen = [row["validation"] for row in run.metrics if row["step"] % 3 == 0]
    assert state["best"]["score"] >= max(seen) - 1e-3  # the file has six digits
    saved = load_file(run.folder / "model.safetensors")
    assert all(torch.equal(saved[name], value) for name, value in state["best"]["weights"].items())
    measure = validator(run.recipe, few_glyphs, few_glyphs, None)
    assert measure(psco.load(run.folder).method) == pytest.approx(state["best"]["score"])


def test_a_model_that_only_gets_worse_is_saved_as_it_was_at_first(few_glyphs, small, tmp_path):
    changes = ["train.learning_rate=30"]
    worse = train(few_glyphs, tmp_path / "a", small, validation=few_glyphs, changes=changes)
    best = load_resume(worse.folder)["best"]
    assert best["score"] > best["latest"]
    last = load_resume(worse.folder)["method"]
    saved = load_file(worse.folder / "model.safetensors")
    assert any(not torch.equal(saved[name], last[name]) for name in saved)


def test_an_interruption_changes_neither_the_weights_nor_the_choice(few_glyphs, small, tmp_path):
    def stop(row):
        if row["step"] == 8:
            raise RuntimeError("power cut")

    options = {"validation": few_glyphs, "checkpoint_steps": 5}
    train(few_glyphs, tmp_path / "whole", small, **options)
    with pytest.raises(RuntimeError, match="power cut"):
        train(few_glyphs, tmp_path / "parts", small, loggers=[stop], **options)
    assert load_resume(tmp_path / "parts")["step"] == 5
    train(few_glyphs, tmp_path / "parts", small, resume=True, **options)
    one, other = (load_resume(tmp_path / name) for name in ("whole", "parts"))
    assert one["best"]["score"] == other["best"]["score"]
    assert one["best"]["step"] == other["best"]["step"]
    for part in ("method", "weights"):
        a = one["method"] if part == "method" else one["best"]["weights"]
        b = other["method"] if part == "method" else other["best"]["weights"]
        assert a.keys() == b.keys()
        assert all(torch.equal(a[name], b[name]) for name in a)


def test_validation_does_not_change_the_training(few_glyphs, small, tmp_path):
    train(few_glyphs, tmp_path / "with", small, validation=few_glyphs)
    train(few_glyphs, tmp_path / "without", small, changes=["train.select=last"])
    one, other = (load_resume(tmp_path / name)["method"] for name in ("with", "without"))
    assert all(torch.equal(one[name], other[name]) for name in one)


def test_the_validation_images_are_the_val_split_of_a_named_data_set(few_glyphs, tmp_path):
    recipe = load_recipe("glyphs", ["backbone.width=4", *SELECT])
    method = psco.Encoder.untrained(recipe).method
    val = psco.load_dataset("glyphs", "val")
    by_name = validator(recipe, "glyphs", None, None)(method)
    assert by_name == validator(recipe, few_glyphs, val, None)(method)
    assert by_name != validator(recipe, few_glyphs, few_glyphs, None)(method)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({}, "needs a data set with a val split, got 'images'"),
        ({"changes": ["train.average_last=0.5"]}, "average_last requires select=last, got 0.5"),
        ({"changes": ["train.select_ways=31"], "validation": "few"}, "31 classes"),
        (
            {"method": "maml", "changes": ["method.ways=4"], "validation": "few"},
            "train.select_ways must be at most method.ways, 4, got 5",
        ),
        ({"devices": 2, "changes": ["train.batch_size=60"]}, "one device only, got 2 ranks"),
    ],
)
def test_what_cannot_be_validated_is_refused_and_writes_nothing(
    few_glyphs, small, tmp_path, options, message
):
    if options.get("validation") == "few":
        options = {**options, "validation": few_glyphs}
    nameless = psco.ImageSet(few_glyphs.images, few_glyphs.labels, few_glyphs.classes)
    with pytest.raises(psco.InputError, match=message):
        train(nameless, tmp_path / "run", small, **options)
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("method", ["maml", "protonets"])
def test_the_recipes_of_the_cross_domain_table_are_the_papers(method):
    recipe = load_recipe(f"miniimagenet-{method}")
    options, settings = recipe.method.options, recipe.train
    assert recipe.method.name == method
    assert (options["ways"], options["shots"]) == (5, 5)
    assert (settings.optimizer, settings.learning_rate) == ("adam", 0.001)
    assert (settings.decay, settings.halving_steps) == ("halving", 2000)
    assert (settings.steps, settings.epochs, settings.select) == (60_000, None, "validation")
    assert recipe.backbone.name == "conv5"
    assert recipe.views.view_a == {}
    assert np.isclose(settings.weight_decay, 0)
