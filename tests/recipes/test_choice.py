"""The recipe for a folder without one: chosen by what its images look like."""

from __future__ import annotations

from importlib import metadata

import numpy as np
import pytest
from PIL import Image, ImageDraw

from psco.networks.published import PUBLISHED
from psco.recipes.advice import check_images
from psco.recipes.choice import choose_recipe, default_recipe, kind_of_images
from psco.recipes.recipe import load_recipe

needs_weights = pytest.mark.skipif(
    not PUBLISHED["imagenet"].is_installed, reason=PUBLISHED["imagenet"].missing
)


def photograph(seed: int) -> Image.Image:
    """A picture of smooth colours."""
    small = np.random.default_rng(seed).integers(0, 256, (6, 8, 3), dtype=np.uint8)
    return Image.fromarray(small).resize((160, 120), Image.Resampling.BICUBIC)


def drawing(seed: int, paper: int = 245) -> Image.Image:
    """Lines on paper of one grey level."""
    image = Image.new("L", (100, 100), paper)
    ends = np.random.default_rng(seed).integers(0, 100, (4, 4)).tolist()
    for end in ends:
        ImageDraw.Draw(image).line(end, fill=(paper + 128) % 256, width=3)
    return image


def folder_of(tmp_path, images):
    for number, image in enumerate(images):
        image.save(tmp_path / f"{number}.png")
    return tmp_path


@needs_weights
def test_colour_photographs_get_the_frozen_network_and_the_way_out(tmp_path):
    choice = choose_recipe(folder_of(tmp_path, [photograph(n) for n in range(5)]))
    assert choice.recipe == "own-photos-frozen"
    assert "--recipe own-images" in choice.note
    assert load_recipe(choice.recipe).train.freeze == "backbone"


def test_without_the_weights_photographs_train_from_scratch_and_the_loss_is_stated(
    tmp_path, monkeypatch
):
    def absent(name: str) -> None:
        raise metadata.PackageNotFoundError(name)

    monkeypatch.setattr(metadata, "distribution", absent)
    choice = choose_recipe(folder_of(tmp_path, [photograph(n) for n in range(5)]))
    assert choice.recipe == "own-images"
    assert "pip install -e '.[photos]'" in choice.note


def test_drawings_get_the_recipe_for_drawings(tmp_path):
    choice = choose_recipe(folder_of(tmp_path, [drawing(n) for n in range(5)]))
    assert choice.recipe == "own-drawings"
    assert "--recipe own-images" in choice.note


@pytest.mark.parametrize("paper", [0, 120, 255])
def test_the_paper_of_a_drawing_may_have_any_grey_level(paper):
    image = np.asarray(drawing(0, paper).convert("RGB"))
    assert kind_of_images([image]) == "drawings"


def test_grey_photographs_keep_the_recipe_for_own_images(tmp_path):
    images = [photograph(n).convert("L") for n in range(5)]
    assert choose_recipe(folder_of(tmp_path, images)) == ("own-images", "")


def test_most_images_decide(tmp_path):
    images = [drawing(0), drawing(1), drawing(2), photograph(0), photograph(1)]
    assert default_recipe(folder_of(tmp_path, images)) == "own-drawings"


def test_undecodable_files_are_passed_over(tmp_path):
    (tmp_path / "bad.png").write_bytes(b"no image")
    assert default_recipe(folder_of(tmp_path, [drawing(n) for n in range(3)])) == "own-drawings"


@pytest.mark.parametrize("data", [np.zeros((4, 20, 20, 3), np.uint8), "no such folder"])
def test_other_data_keep_the_recipe_for_own_images(data):
    assert choose_recipe(data) == ("own-images", "")


def test_a_named_data_set_has_its_own_recipe():
    assert choose_recipe("omniglot") == ("omniglot", "")


def test_the_check_of_a_folder_names_the_recipe(tmp_path):
    folder = folder_of(tmp_path, [drawing(n) for n in range(3)])
    assert "recipe own-drawings" in check_images(folder, progress=False).advice[0]


def test_training_prints_the_choice_once(tmp_path, psco, tiny):
    (tmp_path / "own").mkdir()
    folder = folder_of(tmp_path / "own", [drawing(n) for n in range(40)])
    words = ["pretrain", folder, "--out", tmp_path / "run", "--set", *tiny, "--steps", 2]
    done = psco(*words)
    assert done.returncode == 0, done.stderr
    assert done.stderr.count("note: these look like drawings on plain paper") == 1
