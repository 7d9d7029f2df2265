"""Embedding images: a trained run, an untrained network and raw pixels behind one small face."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Protocol

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from psco.data.imageset import ImageArray
from psco.errors import InputError
from psco.evaluation.rules import Embeddings, Heads, join_embeddings
from psco.methods import Method
from psco.recipes.build import build_method, build_views
from psco.recipes.recipe import Recipe, load_recipe
from psco.training.checkpoint import load_model, read_recipe
from psco.views import SameOnBatchGenerator, plain_view, resize, to_batch

_BATCH = 512  # images embedded at a time


class Embedder(Protocol):
    """What evaluation needs: images as points, and the heads that made them, if there are any."""

    @property
    def heads(self) -> Heads | None:
        """The heads that made the points."""

    def embed(self, images: ImageArray) -> Embeddings:
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

    def features(self, images: ImageArray) -> Tensor:
        """Give the backbone's features (n, width) of images (n, H, W, C) uint8; see `embed`."""
        return self.embed(images).features

    def embed(self, images: ImageArray) -> Embeddings:
        """Embed images (n, H, W, C) uint8 once, for any rule: points (n,).

        Raises
        ------
        InputError
            If the method's features mean nothing without a task.
        """
        if not self.method.has_features:
            name = self.recipe.method.name
            raise InputError(
                f"a network of {name!r} has no features before it meets a task; "
                f"use the rule {self.method.rule!r}"
            )
        return join_embeddings([self.embed_batch(to_batch(part)) for part in _batches(images)])

    @torch.no_grad()
    def embed_batch(self, batch: Tensor) -> Embeddings:
        """Embed a batch (b, C, H, W) uint8 that is where the network is: points (b,).

        If the recipe has views at test, the features are means over them and the image itself,
        and so are the directions of supports and queries. The views change all images alike,
        whatever the batch, so an image is embedded as if it were alone.
        """
        image, at_test = self.recipe.image, self.recipe.views.at_test
        looks = [plain_view(batch, image.size, image.mean, image.std)]
        if at_test:
            view_b, generator = (
                build_views(self.recipe).view_b,
                SameOnBatchGenerator().manual_seed(0),
            )
            looks += [view_b(batch, generator) for _ in range(at_test)]
        features = torch.stack([self.method.backbone(look) for look in looks])  # (v, b, width)
        return Embeddings(
            features.mean(dim=0),
            _mean_direction([self.method.support_head(each) for each in features]),
            _mean_direction([self.method.query_head(each) for each in features]),
        )

    def pixels(self, images: ImageArray) -> Embeddings:
        """Give images (n, H, W, C) uint8 as the network takes them, for rules that train it.

        Returns
        -------
        Embeddings
            (n,), whose features are the flattened pixels (n, C·size·size).
        """
        image = self.recipe.image
        pixels = torch.cat(
            [
                plain_view(to_batch(part), image.size, image.mean, image.std).flatten(1)
                for part in _batches(images)
            ]
        )
        return Embeddings(pixels, pixels[:, :0], pixels[:, :0])

    def embed_query(self, images: ImageArray) -> Tensor:
        """Give Normalize(h∘g∘f) of images (n, H, W, C) uint8: (n, d)."""
        return self.embed(images).query

    def embed_support(self, images: ImageArray) -> Tensor:
        """Give Normalize(g∘f) of images (n, H, W, C) uint8: (n, d)."""
        return self.embed(images).support


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

    def embed(self, images: ImageArray) -> Embeddings:
        """Give the pixel vectors (n, size * size * C) of images (n, H, W, C) uint8 as points."""
        pixels = torch.cat(
            [resize(to_batch(part), self.size).flatten(1) for part in _batches(images)]
        )
        pixels = F.normalize(pixels - pixels.mean(dim=1, keepdim=True), dim=1)
        return Embeddings(pixels, pixels, pixels)


def load(run: str | Path, views_at_test: int | None = None) -> Encoder:
    """Load the network of a run folder.

    Parameters
    ----------
    run
        The folder.
    views_at_test
        Instead of the recipe's number, see `Encoder.embed_batch`; not for classifiers, whose
        ``calibration.json`` belongs to the latter.

    Raises
    ------
    InputError
        If the folder holds no finished model, or one of another architecture; if the number is
        negative.
    """
    folder = Path(run)
    recipe = read_recipe(folder)
    if views_at_test is not None:
        recipe = load_recipe(recipe, [f"views.at_test={views_at_test}"])
    method = build_method(recipe)
    steps = load_model(folder, method)
    return Encoder(method, recipe, folder, steps)


def _batches(images: ImageArray) -> Iterator[np.ndarray]:
    return (images[start : start + _BATCH] for start in range(0, len(images), _BATCH))


def _mean_direction(units: list[Tensor]) -> Tensor:  # of (n, d) of unit length -> (n, d)
    return units[0] if len(units) == 1 else F.normalize(torch.stack(units).sum(dim=0), dim=1)
