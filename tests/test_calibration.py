"""Temperatures and likenesses from unlabelled images alone."""

from __future__ import annotations

import json

import numpy as np
import pytest
import torch

import psco
from psco.build import build_method
from psco.calibration import (
    Calibration,
    calibrate,
    calibrate_run,
    pseudo_temperature,
    read_calibration,
)
from psco.checkpoint import save_checkpoint, start_folder
from psco.recipe import load_recipe


@pytest.fixture
def encoder(tiny):
    return psco.Encoder.untrained(load_recipe("glyphs", tiny))


@pytest.fixture
def run(encoder, tmp_path):
    start_folder(tmp_path / "run", encoder.recipe, {})
    torch.manual_seed(0)
    save_checkpoint(tmp_path / "run", build_method(encoder.recipe), encoder.recipe, 0, {})
    return tmp_path / "run"


def test_a_run_is_calibrated_for_as_many_ways_as_there_are_images(run, pictures):
    found = calibrate_run(run, psco.ImageSet(pictures[:20]))
    assert found.ways == (2, 5, 10, 20)
    assert all(0 < temperature < 100 for temperature in found.temperature)
    assert all(np.all(np.diff(row) >= 0) for row in found.likeness)
    assert all(row[0] >= -1 and row[-1] <= 1 for row in found.likeness)
    assert read_calibration(run) == found
    assert json.loads((run / "calibration.json").read_text())["format"] == 1


def test_the_same_seed_calibrates_alike_and_another_one_nearly(encoder, pictures):
    one, same, other = (calibrate(encoder, pictures, seed=seed) for seed in (0, 0, 1))
    assert one == same != other
    assert np.allclose(one.temperature, other.temperature, rtol=0.5)


def test_values_between_the_ways_are_interpolated_and_beyond_them_kept():
    known = Calibration((2, 8), (0.1, 0.2), ((0.1, 0.3), (0.5, 0.9)))
    assert [known.temperature_for(n) for n in (1, 2, 4, 8, 99)] == pytest.approx(
        [0.1, 0.1, 0.15, 0.2, 0.2]
    )
    assert known.likeness_for(4) == pytest.approx([0.3, 0.6])


def test_a_single_number_of_ways_can_be_asked_for(encoder, pictures):
    assert pseudo_temperature(encoder, pictures, 7) > 0


def test_too_few_images_are_refused_with_the_numbers(encoder, pictures):
    with pytest.raises(psco.InputError, match="1 images are too few: pseudo-tasks of 2 ways"):
        calibrate(encoder, pictures[:1])
    with pytest.raises(psco.InputError, match="60 images are too few: pseudo-tasks of 61 ways"):
        pseudo_temperature(encoder, pictures, 61)


def test_a_run_without_calibration_has_none_and_a_damaged_one_says_so(run):
    assert read_calibration(run) is None
    for text in ("{", "[]", '{"format": 1}', '{"format": 1, "ways": [2], "temperature": "x"}'):
        (run / "calibration.json").write_text(text)
        with pytest.raises(psco.PscoError, match=r"calibration.json is damaged"):
            read_calibration(run)
    (run / "calibration.json").write_text('{"format": 2}')
    with pytest.raises(psco.PscoError, match="has format 2 and this version reads 1"):
        read_calibration(run)
