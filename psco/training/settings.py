"""The settings of a run: those that were asked for, or those of the folder it continues."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from psco.errors import InputError
from psco.ops.ranks import rank
from psco.recipes.choice import choose_recipe
from psco.recipes.recipe import Override, Recipe, load_recipe
from psco.recipes.schema import LENGTHS
from psco.training.checkpoint import is_free, read_recipe


def resolve_settings(
    folder: Path,
    data: object,
    recipe: str | Path | Recipe | None,
    overrides: Sequence[str | Override],
    resume: bool,
) -> Recipe:
    """Return the settings of a run; to resume a run, those of its folder.

    Only the length of a run may change: overrides of ``train.steps``, ``train.epochs`` or
    ``train.minutes`` prolong it.

    Raises
    ------
    InputError
        If a setting is not allowed or differs from the folder's, or the folder is in use.
    """
    if is_free(folder):
        return load_recipe(recipe or _chosen(data), overrides)
    if not resume:
        raise InputError(
            f"{str(folder)!r} exists already; --resume continues its run, another --out starts a "
            f"new one"
        )
    stored = read_recipe(folder)
    requested = load_recipe(recipe or stored, overrides)
    if _sets_length(overrides):
        stored = _with_length(stored, requested)
    if stored != requested:
        difference = _first_difference(stored, requested)
        raise InputError(f"cannot resume {str(folder)!r} with other settings: {difference}")
    return requested


def length_of(recipe: Recipe) -> str:
    """Return the length of a run as text, such as ``600 steps``."""
    lengths = {unit: getattr(recipe.train, unit) for unit in LENGTHS}
    return next(f"{value:g} {unit}" for unit, value in lengths.items() if value is not None)


def _sets_length(overrides: Sequence[str | Override]) -> bool:
    parsed = [Override.parse(item) if isinstance(item, str) else item for item in overrides]
    named = {f"train.{unit}" for unit in LENGTHS}
    return any(
        item.path in named
        or (item.path == "train" and isinstance(item.value, dict) and set(item.value) & {*LENGTHS})
        for item in parsed
    )


def _with_length(recipe: Recipe, other: Recipe) -> Recipe:
    length = {unit: getattr(other.train, unit) for unit in LENGTHS}
    return recipe.model_copy(update={"train": recipe.train.model_copy(update=length)})


def _chosen(data: object) -> str:
    """Return the recipe that is chosen for the data, and print why."""
    choice = choose_recipe(data)
    if choice.note and rank() == 0:
        print(f"note: {choice.note}", file=sys.stderr)
    return choice.recipe


def _first_difference(stored: Recipe, requested: Recipe) -> str:
    old, new = _leaves(stored.model_dump()), _leaves(requested.model_dump())
    name = next(name for name in {**old, **new} if old.get(name) != new.get(name))
    return f"{name} is {old.get(name)!r} in the run and {new.get(name)!r} here"


def _leaves(tree: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for key, value in tree.items():
        inner = _leaves(value, f"{prefix}{key}.") if isinstance(value, dict) else None
        flat.update({f"{prefix}{key}": value} if inner is None else inner)
    return flat
