"""Embedding images with a network that is ready for use."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from psco.data.imageset import ImageArray
from psco.errors import InputError
from psco.evaluation.hub import local_run
from psco.evaluation.rules import Embeddings, Heads, join_embeddings
from psco.methods import Method
from psco.networks import ConvNet
from psco.recipes.build import build_method, build_views
from psco.recipes.builtin import BUILT_IN, PackagedRun, PublishedEncoder, built_in
from psco.recipes.recipe import Recipe, load_recipe
from psco.training.checkpoint import CONFIG, load_model, read_environment, read_recipe
from psco.views import SameOnBatchGenerator, plain_view, to_batch

_BATCH = 512  # images embedded at a time


class Embedder(Protocol):
    """What evaluation needs of a model: embeddings, and the heads that made them, if any."""

    @property
    def heads(self) -> Heads | None:
        """The heads that made the embeddings."""

    def embed(self, images: ImageArray) -> Embeddings:
        """Return the embeddings (n,) of images (n, H, W, C) uint8, for any rule."""


class Encoder:
    """A network ready for use: in evaluation mode, without gradients, for images as stored.

    Parameters
    ----------
    method
        A trained or new method.
    recipe
        Its settings, including those of the images.
    folder, steps
        Run folder of the network, if any, and the steps it was trained for.
    built_in
        Name of the built-in encoder, if it is one.
    """

    def __init__(
        self,
        method: Method,
        recipe: Recipe,
        folder: Path | None = None,
        steps: int = 0,
        built_in: str | None = None,
    ) -> None:
        # On the CPU, channels_last halves the time of the convolutions.
        self.method = method.eval().to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        self.recipe = recipe
        self.folder, self.steps = folder, steps
        self.built_in = built_in

    @classmethod
    def untrained(cls, recipe: Recipe, seed: int = 0) -> Encoder:
        """Build the network of a recipe with new weights.

        With ``method.name`` set to ``random`` or ``pixels`` this is a baseline of every table.
        """
        with torch.random.fork_rng():
            torch.manual_seed(seed)
            return cls(build_method(recipe), recipe)

    @property
    def name(self) -> str:
        """Name for tables: of the run folder, of the built-in encoder, or of the method."""
        if self.folder is not None:
            return self.folder.name
        return self.built_in or self.recipe.method.name

    @property
    def trained_on(self) -> str | None:
        """Name of the data set the network was trained on; None if that is not recorded."""
        if self.built_in is not None:
            return built_in(self.built_in).trained_on
        name: str | None = _training_data(self.folder).get("name")
        return name

    @property
    def images_trained_on(self) -> int:
        """Number of images the network was trained on; 0 if that is not recorded."""
        number: int = _training_data(self.folder).get("images", 0)
        return number

    @property
    def heads(self) -> Heads | None:
        """The projector and predictor with their temperature, for rules that train them."""
        temperature = float(self.recipe.method.options.get("temperature", 1.0))
        image, method = self.recipe.image, self.method
        shape = (image.channels, image.size, image.size)
        return Heads(method.projector, method.predictor, temperature, method, shape)

    def features(self, images: ImageArray) -> Tensor:
        """Return the features (n, width) of images (n, H, W, C) uint8; see `embed`."""
        return self.embed(images).features

    def embed(self, images: ImageArray, previous: bool = False) -> Embeddings:
        """Return the embeddings (n,) of images (n, H, W, C) uint8; see `embed_batch`.

        Raises
        ------
        InputError
            If the method has no features before it has adapted to a task.
        """
        if not self.method.has_features:
            name = self.recipe.method.name
            raise InputError(
                f"a network of {name!r} has no features before it adapts to a task; "
                f"use the rule {self.method.rule!r}"
            )
        batches = (self.embed_batch(to_batch(part), previous) for part in _batches(images))
        return join_embeddings(list(batches))

    @torch.no_grad()
    def embed_batch(self, batch: Tensor, previous: bool = False) -> Embeddings:
        """Return the embeddings (b,) of a batch (b, C, H, W) uint8 on the network's device.

        With ``previous``, the features are those of the last block and of the one before it, each
        of unit length; only ConvNets have them.

        If the recipe has views at test, features are averaged over the image and its views, and
        so are the directions of support and query embeddings. The random views are the same for
        all images, so an embedding does not depend on the batch.
        """
        views, at_test = [self._plain_view(batch)], self.recipe.views.at_test
        if at_test:
            view_b = build_views(self.recipe).view_b
            generator = SameOnBatchGenerator().manual_seed(0)
            views += [view_b(batch, generator) for _ in range(at_test)]
        found = [self._features(view, previous) for view in views]
        features = torch.stack([last for last, _ in found])  # (v, b, width)
        return Embeddings(
            torch.stack([joined for _, joined in found]).mean(dim=0),
            _mean_direction([self.method.support_head(each) for each in features]),
            _mean_direction([self.method.query_head(each) for each in features]),
        )

    def _features(self, view: Tensor, previous: bool) -> tuple[Tensor, Tensor]:
        """Return the features of the last block, and those that rules read."""
        backbone = self.method.backbone
        if not previous:
            last = backbone(view)  # (b, width)
            return last, last
        if not isinstance(backbone, ConvNet):
            name = self.recipe.backbone.name
            raise InputError(
                f"features=last+previous requires backbone conv4 or conv5, got {name!r}; "
                f"use features=last"
            )
        inner, last = backbone.last_two(view)
        return last, torch.cat([F.normalize(last, dim=1), F.normalize(inner, dim=1)], dim=1)

    def pixels(self, images: ImageArray) -> Embeddings:
        """Return images (n, H, W, C) uint8 as inputs of the network, for rules that train it.

        Returns
        -------
        Embeddings
            (n,), whose features are the flattened inputs (n, C·size·size).
        """
        inputs = [self._plain_view(to_batch(part)).flatten(1) for part in _batches(images)]
        pixels = torch.cat(inputs)
        return Embeddings(pixels, pixels[:, :0], pixels[:, :0])

    def embed_query(self, images: ImageArray) -> Tensor:
        """Return Normalize(h∘g∘f) of images (n, H, W, C) uint8: (n, d)."""
        return self.embed(images).query

    def embed_support(self, images: ImageArray) -> Tensor:
        """Return Normalize(g∘f) of images (n, H, W, C) uint8: (n, d)."""
        return self.embed(images).support

    def _plain_view(self, batch: Tensor) -> Tensor:  # (b, C, H, W) uint8 -> (b, C, size, size)
        image = self.recipe.image
        crop_from = image.source_size if image.test_crop else None
        return plain_view(batch, image.size, image.mean, image.std, crop_from)


def load(run: str | Path, views_at_test: int | None = None) -> Encoder:
    """Load the network of a run folder, or a built-in encoder.

    Parameters
    ----------
    run
        The folder, or the name of a built-in encoder, such as ``"handwriting"``; a run folder of
        that name comes first. ``hf://user/name`` is a folder on the Hugging Face Hub.
    views_at_test
        Replaces the number in the recipe, see `Encoder.embed_batch`. Not for classifiers: the
        ``calibration.json`` of the run holds for the recipe's number.

    Raises
    ------
    InputError
        If the folder holds no finished model or one of another architecture, if the weights of a
        built-in encoder are not installed, or if the number is negative.
    """
    run = local_run(run)
    recipe = encoder_recipe(run)
    if views_at_test is not None:
        recipe = load_recipe(recipe, [f"views.at_test={views_at_test}"])
    named = _built_in(run)
    name = None if named is None else str(run)
    if isinstance(named, PublishedEncoder):
        with torch.random.fork_rng():  # the weights that are drawn are then replaced
            method = build_method(recipe, init=True, quiet=True)
        return Encoder(method, recipe, built_in=name)
    if isinstance(named, PackagedRun):
        with torch.random.fork_rng():
            method = build_method(recipe)
        folder = named.find()
    else:
        method, folder = build_method(recipe), Path(run)
    steps = load_model(folder, method)
    return Encoder(method, recipe, folder, steps, name)


def encoder_recipe(run: str | Path) -> Recipe:
    """Return the recipe of a run folder or of a built-in encoder; see `load`."""
    run = local_run(run)
    named = _built_in(run)
    if isinstance(named, PublishedEncoder):
        return named.recipe()
    return read_recipe(Path(run) if named is None else named.find())


def _built_in(run: str | Path) -> PublishedEncoder | PackagedRun | None:
    """Return the built-in encoder of that name; None for a run folder, which comes first."""
    is_named = str(run) in BUILT_IN and not (Path(run) / CONFIG).exists()
    return built_in(str(run)) if is_named else None


def _training_data(folder: Path | None) -> dict[str, Any]:
    try:
        return {} if folder is None else dict(read_environment(folder).get("data", {}))
    except InputError:  # a folder without a record of its training
        return {}


def _batches(images: ImageArray) -> Iterator[np.ndarray]:
    return (images[start : start + _BATCH] for start in range(0, len(images), _BATCH))


def _mean_direction(units: list[Tensor]) -> Tensor:  # of (n, d) of unit length -> (n, d)
    return units[0] if len(units) == 1 else F.normalize(torch.stack(units).sum(dim=0), dim=1)
