"""A folder of drawings of a few characters, and the network without training that sees them."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from PIL import Image

from psco.recipes.build import build_method
from psco.recipes.recipe import load_recipe
from psco.training.checkpoint import save_checkpoint, start_folder


def write_pictures(folder, images, labels, classes):
    """Write images (n, H, W, 1) as PNG files whose names end with their class."""
    folder.mkdir(parents=True, exist_ok=True)
    for number, (image, label) in enumerate(zip(images, labels, strict=True)):
        name = f"{number:04d}_{classes[label]}.png"
        Image.fromarray(image[..., 0]).save(folder / name)


@pytest.fixture
def folder(tmp_path, few_glyphs):
    """Give a folder of 60 drawings of 6 characters, in an order that mixes them."""
    chosen = np.random.default_rng(0).permutation(120)[:60]
    place = tmp_path / "pictures"
    write_pictures(place, few_glyphs.images[chosen], few_glyphs.labels[chosen], few_glyphs.classes)
    return place


@pytest.fixture(scope="session")
def truth():
    """Return the class that a file name of these folders ends with."""
    return lambda name: name.rsplit("_", 1)[1].removesuffix(".png")


@pytest.fixture
def run(tmp_path, tiny):
    """Write a run folder with random weights."""
    recipe = load_recipe("glyphs", tiny)
    torch.manual_seed(0)
    start_folder(tmp_path / "run", recipe, {})
    save_checkpoint(tmp_path / "run", build_method(recipe), recipe, 0, {})
    return tmp_path / "run"
