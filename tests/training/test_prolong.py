"""Prolonging a run: a longer length with --resume, all other settings from the folder."""

from __future__ import annotations

import shutil

import pytest
import torch
from safetensors.torch import load_file

import psco
from psco.training.checkpoint import load_resume, read_environment, read_recipe


@pytest.fixture
def run(pictures, tmp_path, tiny) -> psco.Run:
    return psco.pretrain(
        pictures, out=tmp_path / "run", recipe="glyphs", overrides=tiny, progress=False
    )


def prolong(pictures, run, **options) -> psco.Run:
    return psco.pretrain(pictures, out=run.folder, resume=True, progress=False, **options)


def test_a_finished_run_goes_on_to_its_new_length_with_its_own_settings(pictures, run):
    longer = prolong(pictures, run, steps=20)
    assert longer.finished
    assert longer.steps == 20
    assert [row["step"] for row in longer.metrics] == list(range(2, 21, 2))
    assert read_recipe(run.folder) == longer.recipe
    assert longer.recipe.train.batch_size == 16
    assert read_environment(run.folder)["prolonged"] == [
        {"step": 12, "from": "12 steps", "to": "20 steps"}
    ]
    assert (run.folder / "calibration.json").is_file()


@pytest.mark.parametrize("length", [{"epochs": 6}, {"minutes": 0.1}])
def test_the_new_length_may_have_another_unit(length, pictures, run):
    longer = prolong(pictures, run, **length)
    assert longer.finished
    assert longer.steps > 12
    assert longer.recipe.train.steps is None


def test_each_further_step_has_the_learning_rate_of_a_run_of_the_new_length(
    pictures, run, tmp_path, tiny
):
    longer = prolong(pictures, run, steps=20)
    fresh = psco.pretrain(
        pictures, out=tmp_path / "fresh", recipe="glyphs", overrides=tiny, steps=20, progress=False
    )
    rates = [[row["learning_rate"] for row in each.metrics] for each in (longer, fresh)]
    assert rates[0][6:] == rates[1][6:]
    assert rates[0][6] > rates[0][5]  # the short run had ended near 0


def test_a_prolonged_run_that_was_interrupted_resumes_exactly(pictures, run, tmp_path):
    shutil.copytree(run.folder, tmp_path / "copy")
    whole = prolong(pictures, run, steps=20)

    def stop(row):
        if row["step"] == 16:
            raise KeyboardInterrupt

    copy = psco.Run(tmp_path / "copy", run.recipe, 12, finished=True)
    with pytest.raises(KeyboardInterrupt):
        prolong(pictures, copy, steps=20, loggers=[stop], checkpoint_steps=1)
    resumed = prolong(pictures, copy)  # the new length is in the folder
    assert resumed.steps == 20
    one, other = (load_resume(each.folder)["method"] for each in (whole, resumed))
    assert all(torch.equal(one[name], other[name]) for name in one)
    steps = [[row["step"] for row in each.quality] for each in (whole, resumed)]
    assert steps[0] == steps[1] == [0, 4, 6, 10, 12, 16, 20]


def test_the_mean_of_the_weights_is_that_of_the_new_last_part(pictures, tmp_path, tiny):
    options = {
        "recipe": "glyphs",
        "progress": False,
        "overrides": [*tiny, "train.average_last=0.5"],
    }
    run = psco.pretrain(pictures, out=tmp_path / "run", **options)
    first = load_file(run.folder / "model.safetensors")
    longer = prolong(pictures, run, steps=24)
    state = load_resume(longer.folder)
    assert state["average"]["steps"] == 12
    assert state["average"]["settled"]
    second = load_file(run.folder / "model.safetensors")
    assert not all(torch.equal(first[name], second[name]) for name in first)


@pytest.mark.parametrize("steps", [6, 11])
def test_a_shorter_length_is_an_error_that_leaves_the_run_as_it_was(steps, pictures, run):
    before = (run.folder / "config.yaml").read_bytes()
    with pytest.raises(psco.InputError, match=f"{steps} steps do not prolong .* 12 steps"):
        prolong(pictures, run, steps=steps)
    assert (run.folder / "config.yaml").read_bytes() == before


def test_other_settings_still_have_to_agree(pictures, run):
    with pytest.raises(psco.InputError, match=r"train\.seed is 0 in the run and 5 here"):
        prolong(pictures, run, steps=20, seed=5)
