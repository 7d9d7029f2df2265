"""The built-in encoder for handwriting: a run folder inside the package."""

from __future__ import annotations

import shutil

import numpy as np
import pytest
import torch
from PIL import Image

import psco
from psco.classifier.bulk import fit_files
from psco.data.sets.glyphs import load_glyphs
from psco.errors import PscoError
from psco.files.checksums import hash_file
from psco.recipes import builtin
from psco.recipes.builtin import MODELS, built_in

FOLDER = MODELS / "handwriting"
# In percent, from the card; the four settings of the paper.
ACCURACY = {(5, 1): 98.82, (5, 5): 99.76, (20, 1): 96.12, (20, 5): 99.08}


@pytest.fixture
def samples(tmp_path):
    """A folder with three drawings of each of four characters that no encoder has seen."""
    glyphs = load_glyphs("test")
    for name in range(4):
        (tmp_path / "samples" / f"class {name}").mkdir(parents=True)
        for number in range(3):
            picture = glyphs.images[np.flatnonzero(glyphs.labels == name)[number]]
            file = tmp_path / "samples" / f"class {name}" / f"{number}.png"
            Image.fromarray(picture[..., 0]).save(file)
    return tmp_path / "samples"


def test_it_is_small_and_is_loaded_by_name_with_its_views_and_calibration():
    assert sum(file.stat().st_size for file in FOLDER.iterdir()) < 4e6
    encoder = psco.load("handwriting")
    assert (encoder.name, encoder.trained_on) == ("handwriting", "omniglot")
    assert encoder.recipe.views.at_test == 4
    assert encoder.method.projector[0].weight.dtype == torch.float32
    classifier = psco.FewShotClassifier("handwriting", reject_below="auto")
    pictures = np.random.default_rng(0).integers(0, 256, (2, 53, 53, 1), dtype=np.uint8)
    assert classifier.fit(pictures, ["a", "b"]).threshold_ is not None  # one shot: calibrated


def test_loading_it_leaves_the_random_state_alone():
    torch.manual_seed(3)
    expected = torch.rand(1)
    torch.manual_seed(3)
    psco.load("handwriting")
    assert torch.equal(torch.rand(1), expected)


def test_a_classifier_of_it_is_saved_and_loaded(tmp_path, samples):
    classifier = fit_files("handwriting", samples)
    files = sorted(str(path) for path in samples.rglob("*.png"))
    expected = classifier.predict_proba(files)
    classifier.save(tmp_path / "mine.psco")
    again = psco.FewShotClassifier.load(tmp_path / "mine.psco")
    assert np.array_equal(again.predict_proba(files), expected)


def test_commands_accept_the_name_in_place_of_a_run_folder(tmp_path, samples, psco):
    fitted = psco("fit", "handwriting", samples, "-o", tmp_path / "mine.psco")
    assert "4 classes, 12 supports" in fitted.stdout, fitted.stderr
    words = ("--data", samples, "--ways", 4, "--shots", 1, "--queries", 2, "--tasks", 5)
    assert "handwriting on" in psco("evaluate", "handwriting", *words).stdout


def test_changed_weights_are_refused_even_with_a_valid_checksum_inside(tmp_path, monkeypatch):
    shutil.copytree(FOLDER, tmp_path / "handwriting")
    weights = tmp_path / "handwriting" / "model.safetensors"
    content = bytearray(weights.read_bytes())
    content[-1] ^= 1
    weights.write_bytes(content)
    monkeypatch.setattr(builtin, "MODELS", tmp_path)
    with pytest.raises(PscoError, match=r"model\.safetensors.*sha256 differs.*reinstall psco"):
        psco.load("handwriting")


def test_its_card_names_the_hash_the_command_and_the_accuracies():
    card = (FOLDER / "README.md").read_text()
    assert built_in("handwriting").sha256 == hash_file(FOLDER / "model.safetensors")
    assert built_in("handwriting").sha256 in card
    assert "psco pretrain omniglot --recipe omniglot-best" in card
    for accuracy in ACCURACY.values():
        assert f"{accuracy:.2f}" in card
