"""Embedding images: a trained run, an untrained network and raw pixels behind one small face."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Protocol

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from psco.build import build_method
from psco.checkpoint import load_model, read_recipe
from psco.data.imageset import ImageArray
from psco.errors import InputError
from psco.methods import Method
from psco.recipe import Recipe
from psco.rules import Heads, Points
from psco.views import plain_view, resize, to_batch

_BATCH = 512  # images embedded at a time


class Embedder(Protocol):
    """What evaluation needs: images as points, and the heads that made them, if there are any."""

    @property
    def heads(self) -> Heads | None:
        """The heads that made the points."""

    def points(self, images: ImageArray) -> Points:
        """Embed images (n, H, W, C) uint8 once, for any rule: points (n,)."""


class Encoder:
    """A network ready for use: evaluation mode, no gradients, images as they are stored.

    Parameters
    ----------
    method
        A trained or fresh method.
    recipe
        Says how images are brought to the network.
    folder, steps
        Run folder the network comes from, if any, and the steps it was trained for.
    """

    def __init__(
        self, method: Method, recipe: Recipe, folder: Path | None = None, steps: int = 0
    ) -> None:
        # On CPU, channels_last halves the time of the convolutions.
        self.method = method.eval().to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        self.recipe = recipe
        self.folder, self.steps = folder, steps

    @classmethod
    def untrained(cls, recipe: Recipe, seed: int = 0) -> Encoder:
        """Make the network of a recipe with fresh weights."""
        with torch.random.fork_rng():
            torch.manual_seed(seed)
            return cls(build_method(recipe), recipe)

    @property
    def heads(self) -> Heads | None:
        """The projector and predictor with their temperature, for rules that train them."""
        temperature = float(self.recipe.method.options.get("temperature", 1.0))
        image, method = self.recipe.image, self.method
        shape = (image.channels, image.size, image.size)
        return Heads(method.projector, method.predictor, temperature, method, shape)

    @torch.no_grad()
    def features(self, images: ImageArray) -> Tensor:
        """Give the backbone's features (n, width) of images (n, H, W, C) uint8.

        Raises
        ------
        InputError
            If the method's features mean nothing without a task.
        """
        if not self.method.embeds:
            name = self.recipe.method.name
            raise InputError(
                f"a network of {name!r} has no features before it meets a task; "
                f"use the rule {self.method.rule!r}"
            )
        return _by_batch(lambda part: self.method.backbone(self._view(part)), images)

    @torch.no_grad()
    def points(self, images: ImageArray) -> Points:
        """Embed images (n, H, W, C) uint8 once, for any rule: points (n,)."""
        features = self.features(images)
        return Points(
            features, self.method.support_head(features), self.method.query_head(features)
        )

    def pixels(self, images: ImageArray) -> Points:
        """Give images (n, H, W, C) uint8 as the network takes them, for rules that train it.

        Returns
        -------
        Points
            (n,), whose features are the flattened pixels (n, C·size·size).
        """
        pixels = _by_batch(lambda part: self._view(part).flatten(1), images)
        return Points(pixels, pixels[:, :0], pixels[:, :0])

    def _view(self, images: np.ndarray) -> Tensor:  # (b, H, W, C) -> (b, C, size, size)
        image = self.recipe.image
        return plain_view(to_batch(images), image.size, image.mean, image.std)

    def embed_query(self, images: ImageArray) -> Tensor:
        """Give Normalize(h∘g∘f) of images (n, H, W, C) uint8: (n, d)."""
        return self.points(images).query

    def embed_support(self, images: ImageArray) -> Tensor:
        """Give Normalize(g∘f) of images (n, H, W, C) uint8: (n, d)."""
        return self.points(images).support


class RawPixels:
    """The floor of every table: pixels, less their mean, of unit length; no network at all.

    Parameters
    ----------
    size
        Side in pixels to which images are resized first.
    """

    heads: Heads | None = None

    def __init__(self, size: int) -> None:
        self.size = size

    def points(self, images: ImageArray) -> Points:
        """Give the pixel vectors (n, size * size * C) of images (n, H, W, C) uint8 as points."""
        pixels = _by_batch(lambda part: resize(to_batch(part), self.size).flatten(1), images)
        pixels = F.normalize(pixels - pixels.mean(dim=1, keepdim=True), dim=1)
        return Points(pixels, pixels, pixels)


def load(run: str | Path) -> Encoder:
    """Load the network of a run folder.

    Raises
    ------
    InputError
        If the folder holds no finished model, or one of another architecture.
    """
    folder = Path(run)
    recipe = read_recipe(folder)
    method = build_method(recipe)
    steps = load_model(folder, method)
    return Encoder(method, recipe, folder, steps)


def _by_batch(function: Callable[[np.ndarray], Tensor], images: ImageArray) -> Tensor:
    starts = range(0, len(images), _BATCH)
    return torch.cat([function(images[start : start + _BATCH]) for start in starts])
