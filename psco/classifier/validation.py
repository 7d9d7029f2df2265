"""Validation tasks during training, for recipes that keep the best model instead of the last."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import torch

from psco.data import ImageSet, has_splits, load_dataset
from psco.data.tasks import Tasks
from psco.errors import InputError
from psco.evaluation.embed import Encoder
from psco.evaluation.evaluate import draw_tasks, evaluate_tasks
from psco.methods import Method
from psco.recipes.recipe import Recipe
from psco.training.selection import Validate

_QUERIES = 15
_SEED = 0


def validator(
    recipe: Recipe, data: object, validation: object, root: str | Path | None
) -> Validate:
    """Draw validation tasks and return the function that measures a network's accuracy on them.

    Parameters
    ----------
    recipe
        The settings, including the number and size of the tasks.
    data
        The training data; their val split is used if ``validation`` is None.
    validation
        Labelled images of other classes, anything that `load_dataset` takes, or None.
    root
        Folder of a named data set.

    Returns
    -------
    callable
        Maps a method to its mean accuracy in percent, under its own rule; the tasks are the same
        at every call.

    Raises
    ------
    InputError
        If there is no validation split, or it is too small for such tasks.
    """
    train = recipe.train
    images = _load(recipe, data, validation, root)
    wanted = [(train.select_ways, train.select_shots)]
    (tasks,) = draw_tasks(images, wanted, _QUERIES, train.select_tasks, _SEED)
    images, tasks = _used(images, tasks)

    def measure(method: Method) -> float:
        with torch.random.fork_rng():
            encoder = Encoder(method, recipe)
            return evaluate_tasks(encoder, images, [tasks], method.rule)[0].mean

    return measure


def _load(recipe: Recipe, data: object, validation: object, root: str | Path | None) -> ImageSet:
    image = recipe.image
    source = validation
    if source is None:
        source = data.name if isinstance(data, ImageSet) else data
        if not has_splits(source):
            raise InputError(
                f"train.select=validation needs a data set with a val split, got {str(source)!r}; "
                f"pass validation= in Python, or --set train.select=last"
            )
    return load_dataset(source, "val", root, size=image.source_size, channels=image.channels)


def _used(images: ImageSet, tasks: Tasks) -> tuple[ImageSet, Tasks]:
    """Return the images that occur in tasks, and the tasks with indices into them."""
    together = np.concatenate([tasks.support, tasks.query], axis=2)  # (T, N, K + Q)
    used, places = np.unique(together, return_inverse=True)
    places = places.reshape(together.shape)
    shots = tasks.support.shape[2]
    labels = None if images.labels is None else images.labels[used]
    fewer = replace(images, images=images.images[used], labels=labels)
    return fewer, replace(tasks, support=places[..., :shots], query=places[..., shots:])
