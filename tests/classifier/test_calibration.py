"""Temperatures and similarities measured on unlabelled images."""

from __future__ import annotations

import json

import numpy as np
import pytest
import torch

import psco
from psco.classifier.calibration import (
    Calibration,
    calibrate,
    calibrate_run,
    read_calibration,
)
from psco.files.checksums import write_json
from psco.recipes.build import build_method
from psco.recipes.recipe import load_recipe
from psco.training.checkpoint import save_checkpoint, start_folder
from psco.views import Crop


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
    assert all(np.all(np.diff(row) >= 0) for row in found.similarity)
    assert all(row[0] >= -1 and row[-1] <= 1 for row in found.similarity)
    assert read_calibration(run) == found
    assert json.loads((run / "calibration.json").read_text())["format"] == 1


def test_the_same_seed_gives_the_same_calibration_and_another_a_close_one(encoder, pictures):
    one, same, other = (calibrate(encoder, pictures, seed=seed) for seed in (0, 0, 1))
    assert one == same != other
    assert np.allclose(one.temperature, other.temperature, rtol=0.5)


def test_similarities_shift_half_way_to_that_of_different_images(encoder, pictures, monkeypatch):
    images = pictures[:12]
    queries, supports = encoder.embed_query(images), encoder.embed_support(images)
    pairs = [float(queries[a] @ supports[b]) for a in range(12) for b in range(12) if a != b]
    found = {}
    for fraction in (0.1, 0.6):
        monkeypatch.setattr("psco.classifier.calibration._SAME_CLASS", fraction)
        found[fraction] = calibrate(encoder, images, ways=(5,))
    apart = np.quantile(pairs, 0.9) - np.quantile(pairs, 0.4)
    moved = np.subtract(found[0.1].similarity, found[0.6].similarity)
    np.testing.assert_allclose(moved, apart / 2, atol=1e-6)
    assert found[0.1].temperature == found[0.6].temperature


def test_values_are_interpolated_between_ways_and_constant_beyond_them():
    known = Calibration((2, 8), (0.1, 0.2), ((0.1, 0.3), (0.5, 0.9)))
    assert [known.temperature_for(n) for n in (1, 2, 4, 8, 99)] == pytest.approx(
        [0.1, 0.1, 0.15, 0.2, 0.2]
    )
    assert known.similarity_for(4) == pytest.approx([0.3, 0.6])


def test_too_few_images_are_rejected_with_the_required_number(encoder, pictures):
    with pytest.raises(psco.InputError, match="2-way tasks requires at least 2 images, got 1"):
        calibrate(encoder, pictures[:1])
    with pytest.raises(psco.InputError, match="61-way tasks requires at least 61 images, got 60"):
        calibrate(encoder, pictures, ways=(61,))


def test_crops_keep_at_least_a_third_of_the_image(tiny, pictures):
    def similarity(scale):
        recipe = load_recipe("glyphs", [*tiny, f"views.view_a.crop.scale={scale}"])
        return calibrate(psco.Encoder.untrained(recipe), pictures).similarity

    assert similarity([0.01, 0.1]) == similarity([0.35, 0.35])
    assert similarity([0.1, 1.0]) == similarity([0.35, 1.0]) != similarity([0.5, 1.0])


# ---------------------------------------------------------------------------- at the end of a run


def train(pictures, out, tiny, **options):
    return psco.pretrain(
        pictures, out=out, recipe="glyphs", overrides=tiny, progress=False, **options
    )


def test_a_finished_run_is_calibrated_once(pictures, tmp_path, tiny):
    train(pictures, tmp_path / "run", tiny)
    file = tmp_path / "run" / "calibration.json"
    found = read_calibration(tmp_path / "run")
    assert found == calibrate(psco.load(tmp_path / "run"), pictures)
    written = file.stat().st_mtime_ns
    train(pictures, tmp_path / "run", tiny, resume=True)
    assert file.stat().st_mtime_ns == written
    file.unlink()
    train(pictures, tmp_path / "run", tiny, resume=True)
    assert read_calibration(tmp_path / "run") == found


def test_a_run_that_was_stopped_is_calibrated_when_it_ends(pictures, tmp_path, tiny):
    def fail(row) -> None:
        raise KeyboardInterrupt

    train(pictures, tmp_path / "whole", tiny)
    with pytest.raises(KeyboardInterrupt):
        train(pictures, tmp_path / "parts", tiny, loggers=[fail], checkpoint_steps=1)
    assert read_calibration(tmp_path / "parts") is None
    train(pictures, tmp_path / "parts", tiny, resume=True)
    assert read_calibration(tmp_path / "parts") == read_calibration(tmp_path / "whole")


def test_a_run_is_calibrated_with_a_users_view_but_not_with_a_users_function(
    pictures, tmp_path, tiny
):
    def function(images: torch.Tensor) -> torch.Tensor:
        return images[:, :, 2:18, 2:18].float() / 255

    train(pictures, tmp_path / "function", tiny, views=(function, function))
    assert read_calibration(tmp_path / "function") is None
    view = psco.View([Crop(scale=(0.9, 1.0))], 16, [0.5], [0.25])
    train(pictures, tmp_path / "view", tiny, views=(view, view))
    encoder = psco.load(tmp_path / "view")
    found = read_calibration(tmp_path / "view")
    assert found == calibrate(encoder, pictures, view=view) != calibrate(encoder, pictures)


def test_calibration_does_not_change_the_global_random_state(run, pictures):
    state, numbers = torch.get_rng_state(), np.random.get_state()[1].copy()  # noqa: NPY002
    calibrate_run(run, pictures)
    assert torch.equal(state, torch.get_rng_state())
    assert np.array_equal(numbers, np.random.get_state()[1])  # noqa: NPY002


def test_a_missing_calibration_is_none_and_a_damaged_one_is_an_error(run):
    assert read_calibration(run) is None
    for text in ("{", "[]", '{"format": 1}', '{"format": 1, "ways": [2], "temperature": "x"}'):
        (run / "calibration.json").write_text(text)
        with pytest.raises(psco.PscoError, match=r"calibration.json is damaged"):
            read_calibration(run)
    write_json(run / "calibration.json", {"format": 2})
    with pytest.raises(psco.PscoError, match="has format 2 and this version reads 1"):
        read_calibration(run)
