from __future__ import annotations

import inspect
from dataclasses import fields

import numpy as np
import pytest

import psco
from psco.classifier.calibration import calibrate_run, read_calibration
from psco.training.trainer import Trainer


def train(pictures, out, tiny, **options):
    options = {"recipe": "glyphs", "overrides": tiny, "progress": False, **options}
    return psco.pretrain(pictures, out=out, **options)


def test_an_unknown_option_is_an_error_that_names_the_nearest_one(pictures, tmp_path, tiny):
    message = "pretrain: unknown option 'checkpoint_minute'; did you mean 'checkpoint_minutes'"
    with pytest.raises(TypeError, match=message):
        train(pictures, tmp_path / "run", tiny, checkpoint_minute=3)
    assert not (tmp_path / "run").exists()


def test_every_option_of_the_trainer_is_documented():
    text = inspect.getdoc(Trainer)
    described = {name.strip() for line in text.splitlines() for name in line.split(",")}
    assert {option.name for option in fields(Trainer)} <= described


@pytest.mark.parametrize("average", [0.0, 0.5])
def test_the_model_in_memory_is_calibrated_as_the_one_on_disk(pictures, tmp_path, tiny, average):
    run = train(pictures, tmp_path / "run", [*tiny, f"train.average_last={average}"])
    found = read_calibration(run.folder)
    assert found is not None
    assert calibrate_run(run.folder, pictures) == found


def test_a_finished_run_without_a_calibration_gets_one_when_it_is_resumed(pictures, tmp_path, tiny):
    run = train(pictures, tmp_path / "run", tiny)
    found = read_calibration(run.folder)
    (run.folder / "calibration.json").unlink()
    train(pictures, tmp_path / "run", tiny, resume=True)
    assert read_calibration(run.folder) == found


@pytest.mark.parametrize("method", ["maml", "random"])
def test_methods_without_trained_features_are_not_calibrated(pictures, tmp_path, tiny, method):
    labelled = psco.ImageSet(pictures, np.arange(60) // 6, tuple("abcdefghij"))
    options = {"maml": "{name: maml, ways: 2, queries: 1}", "random": "{name: random}"}[method]
    changes = [*tiny, f"method={options}", "train.steps=1"]
    run = train(labelled, tmp_path / "run", changes)
    assert run.finished
    assert read_calibration(run.folder) is None
