"""From a data set to the batches that a method trains on."""

from __future__ import annotations

import hashlib

import numpy as np

from psco.data import ImageSet
from psco.errors import InputError
from psco.methods import Method
from psco.recipes.recipe import Recipe
from psco.training.feed import EpisodeFeed, Feed
from psco.training.stream import StreamFeed


def labels_for(method: Method, images: ImageSet, recipe: Recipe) -> ImageSet:
    """Return the images, with labels only for a supervised method or the purity diagnostic.

    Raises
    ------
    InputError
        If one of them needs labels and there are none.
    """
    name = recipe.method.name
    if method.kind == "supervised" and images.labels is None:
        raise InputError(
            f"method {name!r} needs labels, and {images.name!r} has none; `psco methods` lists the "
            f"methods that need none"
        )
    if recipe.train.purity and images.labels is None:
        raise InputError(
            f"train.purity needs labels, and {images.name!r} has none; --set train.purity=false"
        )
    return images if method.kind == "supervised" or recipe.train.purity else images.unlabelled()


def feed_for(
    method: Method,
    images: ImageSet,
    batch_size: int,
    seed: int,
    workers: int | None = None,
    buffer: int = 0,
) -> Feed:
    """Return the feed that a method trains on.

    It yields tasks if the method trains on tasks of several images per class, batches of tar shards
    read in order if ``buffer`` is not 0, and otherwise shuffled batches. If every image is a class
    of its own, these have as many images as the tasks of a step have classes.
    """
    episode = method.episode
    if episode is not None and method.images_are_classes:
        batch_size, episode = episode.tasks * episode.ways, None
    if buffer and episode is not None:
        raise InputError(
            "a method that trains on tasks cannot read shards in order; "
            "--set train.shuffle_buffer=0"
        )
    if buffer:
        return StreamFeed(images, batch_size, seed, workers, buffer=buffer)
    if episode is not None:
        return EpisodeFeed(images, episode, seed, workers, method.labellings())
    return Feed(images, batch_size, seed, workers)


def fingerprint(images: ImageSet) -> str:
    """Return a hash of a data set's shape and of 64 of its images."""
    content = f"{images.images.shape}".encode() + sample_images(images).tobytes()
    return hashlib.sha256(content).hexdigest()[:16]


def sample_images(images: ImageSet) -> np.ndarray:
    """Return 64 images, (64, H, W, C) uint8, at equal distances in the data set."""
    return images.images[np.linspace(0, len(images) - 1, 64).astype(int)]
