"""Embedding images: a trained run, an untrained network and raw pixels behind one small face."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Protocol

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from psco.build import build_method
from psco.checkpoint import load_model, read_recipe
from psco.recipe import Recipe
from psco.views import plain_view, resize, to_batch

_BATCH = 512  # images embedded at a time


class Embedder(Protocol):
    """What evaluation needs: representations of images as queries and as supports."""

    def embed(self, images: np.ndarray) -> tuple[Tensor, Tensor]:
        """Embed images (n, H, W, C) uint8 as queries and as supports, both (n, d)."""


class Encoder:
    """A network ready for use: evaluation mode, no gradients, images as they are stored.

    Parameters
    ----------
    method
        A trained or fresh method.
    recipe
        Says how images are brought to the network.
    """

    def __init__(self, method: nn.Module, recipe: Recipe) -> None:
        # On CPU, channels_last halves the time of the convolutions.
        self.method = method.eval().to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        self.recipe = recipe

    @classmethod
    def untrained(cls, recipe: Recipe, seed: int = 0) -> Encoder:
        """Make the network of a recipe with fresh weights."""
        with torch.random.fork_rng():
            torch.manual_seed(seed)
            return cls(build_method(recipe), recipe)

    @torch.inference_mode()
    def features(self, images: np.ndarray) -> Tensor:
        """Give the backbone's features (n, width) of images (n, H, W, C) uint8."""
        image, backbone = self.recipe.image, self.method.backbone
        assert isinstance(backbone, nn.Module)
        return _by_batch(
            lambda part: backbone(plain_view(to_batch(part), image.size, image.mean, image.std)),
            images,
        )

    @torch.inference_mode()
    def embed(self, images: np.ndarray) -> tuple[Tensor, Tensor]:
        """Embed images (n, H, W, C) uint8 as queries and as supports, both (n, d)."""
        features = self.features(images)
        return self.method.query_head(features), self.method.support_head(features)

    def embed_query(self, images: np.ndarray) -> Tensor:
        """Give Normalize(h∘g∘f) of images (n, H, W, C) uint8: (n, d)."""
        return self.embed(images)[0]

    def embed_support(self, images: np.ndarray) -> Tensor:
        """Give Normalize(g∘f) of images (n, H, W, C) uint8: (n, d)."""
        return self.embed(images)[1]


class Features:
    """The backbone of an encoder without its heads: queries and supports are treated alike.

    Parameters
    ----------
    encoder
        Trained or untrained.
    """

    def __init__(self, encoder: Encoder) -> None:
        self.encoder = encoder

    def embed(self, images: np.ndarray) -> tuple[Tensor, Tensor]:
        """Give the features (n, width) of unit length of images (n, H, W, C) uint8, twice."""
        features = F.normalize(self.encoder.features(images), dim=1)
        return features, features


class RawPixels:
    """The floor of every table: pixels, less their mean, of unit length; no network at all.

    Parameters
    ----------
    size
        Side in pixels to which images are resized first.
    """

    def __init__(self, size: int) -> None:
        self.size = size

    def embed(self, images: np.ndarray) -> tuple[Tensor, Tensor]:
        """Give the pixel vectors (n, size * size * C) of images (n, H, W, C) uint8, twice."""
        pixels = _by_batch(lambda part: resize(to_batch(part), self.size).flatten(1), images)
        pixels = F.normalize(pixels - pixels.mean(dim=1, keepdim=True), dim=1)
        return pixels, pixels


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
    load_model(folder, method)
    return Encoder(method, recipe)


def _by_batch(function: Callable[[np.ndarray], Tensor], images: np.ndarray) -> Tensor:
    starts = range(0, len(images), _BATCH)
    return torch.cat([function(images[start : start + _BATCH]) for start in starts])
