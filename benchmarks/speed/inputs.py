"""What the benchmarks run on: invented images stored as the real ones, and settings to measure."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np

from psco.data import ImageSet
from psco.data.sets.glyphs import draw_glyphs
from psco.data.sets.omniglot import RotatedImages
from psco.recipes.recipe import Recipe, load_recipe

_TURNS = 4  # Omniglot's classes come in four rotations


@dataclass(frozen=True)
class Case:
    """One training setting that is measured.

    Parameters
    ----------
    recipe
        Name of a recipe that comes with the package.
    overrides
        What differs from it, as ``"method.shots=4"``.
    images
        Size of the data set that is invented for it; by default that of Omniglot's training set,
        so that it fits into the processor's cache no better than the real one.
    """

    recipe: str = "omniglot"
    overrides: tuple[str, ...] = ()
    images: int = 82240

    def with_(self, *overrides: str) -> Case:
        """Give the case with further overrides."""
        return Case(self.recipe, (*self.overrides, *overrides), self.images)

    def settled(self) -> Recipe:
        """Give the whole recipe."""
        return load_recipe(self.recipe, self.overrides)


@lru_cache(maxsize=2)
def invent_images(count: int, size: int, channels: int) -> ImageSet:
    """Draw black strokes on white paper, and store them as the data sets of the paper are.

    Grey images are stored like Omniglot, a bit a pixel, and turned at every access; colour images
    like miniImageNet, a byte a pixel and channel. The same few drawings fill the whole set, each
    time in memory of its own: what a picture shows has no influence on the speed.

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
        base = packed[np.arange(-(-count // _TURNS)) % len(packed)]
        turned = RotatedImages(base, numbers // _TURNS, numbers % _TURNS)
        return ImageSet(turned, name="invented drawings")
    pixels = np.where(paper, np.uint8(255), np.uint8(0))[..., None].repeat(channels, axis=3)
    return ImageSet(pixels[numbers % len(pixels)], name="invented drawings")


def in_classes(images: ImageSet, each: int = 20) -> ImageSet:
    """Give invented images labels, for methods that need some: so many images to a class."""
    labels = np.arange(len(images)) // each
    classes = tuple(f"class{number}" for number in range(int(labels[-1]) + 1))
    return replace(images, labels=labels, classes=classes)
