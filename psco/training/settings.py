"""The settings of a run: those that are asked for, or those of the folder that it continues."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from psco.errors import InputError
from psco.recipes.recipe import Override, Recipe, default_recipe, load_recipe
from psco.training.checkpoint import is_free, read_recipe


def settle_recipe(
    folder: Path,
    data: object,
    recipe: str | Path | Recipe | None,
    overrides: Sequence[str | Override],
    resume: bool,
) -> Recipe:
    """Find the settings of a run, those of the folder if it is to be resumed.

    Raises
    ------
    InputError
        If a setting is not allowed or is another one in the folder, or the folder is in use.
    """
    exists = not is_free(folder)
    if exists and not resume:
        raise InputError(
            f"{str(folder)!r} exists already; --resume continues the run in it, another --out "
            f"starts a new one"
        )
    if recipe is not None or overrides or not exists:
        asked = load_recipe(recipe or default_recipe(data), overrides)
    else:
        return read_recipe(folder)
    if exists and (stored := read_recipe(folder)) != asked:
        raise InputError(
            f"cannot resume {str(folder)!r} with other settings: {_first_difference(stored, asked)}"
        )
    return asked


def _first_difference(stored: Recipe, asked: Recipe) -> str:
    old, new = _leaves(stored.model_dump()), _leaves(asked.model_dump())
    name = next(name for name in {**old, **new} if old.get(name) != new.get(name))
    return f"{name} is {old.get(name)!r} in the run and {new.get(name)!r} here"


def _leaves(tree: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for key, value in tree.items():
        inner = _leaves(value, f"{prefix}{key}.") if isinstance(value, dict) else None
        flat.update({f"{prefix}{key}": value} if inner is None else inner)
    return flat
