"""What the benchmarks train on: settings to measure, and synthetic images for them."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

import numpy as np

from psco.data import ImageSet
from psco.data.sets.glyphs import draw_glyphs
from psco.data.sets.omniglot import RotatedImages
from psco.recipes.recipe import Recipe, load_recipe

_ROTATIONS = 4  # Omniglot's classes come in four rotations


@dataclass(frozen=True)
class Case:
    """One training setting that is measured.

    Parameters
    ----------
    recipe
        Name of a recipe that comes with the package.
    overrides
        Changes to it, such as ``"method.shots=4"``.
    images
        Number of synthetic images. By default that of Omniglot's training set, so that they fit
        into the processor's cache no better than the real ones.
    """

    recipe: str = "omniglot"
    overrides: tuple[str, ...] = ()
    images: int = 82240

    @classmethod
    def from_json(cls, fields: dict[str, Any]) -> Case:
        """Return the case that `dataclasses.asdict` and JSON turned into ``fields``."""
        return cls(fields["recipe"], tuple(fields["overrides"]), fields["images"])

    def with_(self, *overrides: str) -> Case:
        """Return the case with further overrides."""
        return replace(self, overrides=(*self.overrides, *overrides))

    def resolve(self) -> Recipe:
        """Return the whole recipe."""
        return load_recipe(self.recipe, self.overrides)


@lru_cache(maxsize=2)
def synthetic_images(count: int, size: int, channels: int) -> ImageSet:
    """Draw black strokes on white paper, stored as the data sets of the paper are.

    Grey images are stored like Omniglot: one bit a pixel, rotated at every access. Colour images
    are stored like miniImageNet: one byte a pixel and channel. A few drawings are repeated to fill
    the set. Each copy takes its own memory, and speed does not depend on what an image shows.

    Parameters
    ----------
    count
        Number of images.
    size
        Side in pixels.
    channels
        1 (grey) or 3 (colour).

    Returns
    -------
    ImageSet
        Unlabelled images (count, size, size, channels), 0 (ink) or 255 (paper).
    """
    glyphs = draw_glyphs([0], 0)  # (characters, drawings, side, side)
    glyphs = glyphs.reshape(-1, *glyphs.shape[2:])
    nearest = np.arange(size) * glyphs.shape[1] // size
    paper = glyphs[:, nearest[:, None], nearest] > 127  # (drawings, size, size)
    numbers = np.arange(count)
    if channels == 1:
        packed = np.packbits(paper, axis=2)
        base = packed[np.arange(-(-count // _ROTATIONS)) % len(packed)]
        rotated = RotatedImages(base, numbers // _ROTATIONS, numbers % _ROTATIONS)
        return ImageSet(rotated, name="synthetic drawings")
    pixels = np.where(paper, np.uint8(255), np.uint8(0))[..., None].repeat(channels, axis=3)
    return ImageSet(pixels[numbers % len(pixels)], name="synthetic drawings")


def with_labels(images: ImageSet, per_class: int = 20) -> ImageSet:
    """Return the images with labels, for methods that need them."""
    labels = np.arange(len(images)) // per_class
    classes = tuple(f"class{number}" for number in range(int(labels[-1]) + 1))
    return replace(images, labels=labels, classes=classes)
