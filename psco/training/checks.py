"""Checks before a run, and the facts about it that its folder records."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from psco.data import ImageSet, has_splits
from psco.errors import InputError
from psco.files.checksums import hash_file
from psco.methods import METHODS, Method
from psco.networks.weights import weights_file
from psco.recipes.recipe import Recipe
from psco.training.environment import environment
from psco.training.feed import check_split
from psco.training.selection import Validate


def needs_no_images(recipe: Recipe, data: object) -> bool:
    """Whether the run trains nothing, and the data only names the recipe."""
    return METHODS[recipe.method.name].kind == "baseline" and has_splits(data)


def check_ranks(recipe: Recipe, ranks: int) -> None:
    """Raise InputError, before any rank is started, if the run cannot be split over them."""
    name = recipe.method.name
    if ranks > 1 and not METHODS[name].distributes:
        raise InputError(f"method {name!r} trains on one device only, not on {ranks} ranks")
    if ranks > 1 and recipe.train.select == "validation":
        raise InputError(f"train.select=validation trains on one device only, got {ranks} ranks")
    if ranks > 1 and recipe.train.freeze is not None:
        raise InputError(
            f"train.freeze={recipe.train.freeze} trains on one device only, not on {ranks} ranks"
        )
    check_split(recipe.train.batch_size, ranks)


def validation_for(
    recipe: Recipe, method: Method, validator: Callable[[Recipe], Validate] | None
) -> Validate | None:
    """Return the function that measures the validation accuracy; None if the last model is kept.

    Raises
    ------
    InputError
        If the method cannot answer the validation tasks, or nothing can measure them.
    """
    if recipe.train.select == "last":
        return None
    if (ways := recipe.train.select_ways) > method.most_ways:
        raise InputError(
            f"train.select_ways must be at most method.ways, {method.most_ways}, got {ways}"
        )
    if validator is None:
        raise InputError("train.select=validation needs a validator, got a Trainer without one")
    return validator(recipe)


def run_facts(images: ImageSet | str, recipe: Recipe) -> dict[str, Any]:
    """Return machine, software, training images and initial weights, for ``env.json``.

    Of images that were not read there is only the name. Initial weights are recorded by their
    hash, since their file may change later.
    """
    name, number = (images, 0) if isinstance(images, str) else (images.name, len(images))
    facts = {**environment(), "data": {"name": name, "images": number}}
    if recipe.init is not None:
        facts["init_sha256"] = hash_file(weights_file(recipe.init))
    return facts
