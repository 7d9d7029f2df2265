"""Recipes: everything that decides a training run, as one checked tree of settings.

Three levels of settings, the later one winning:

1. the defaults: of the settings, of the constructors of methods, backbones and view parts, and what
   the chosen method changes in every recipe (``Method.settings``);
2. the recipe file; it wins over its base (``base: omniglot``), and that over its own base;
3. ``--set a.b=c`` and the flags of the command line.

The result does not depend on whether a file, a base or a flag names the method. A recipe's settings
are chosen for one method, the one that it names or takes from its base. If the run uses another:

- settings that this method changes in every recipe keep the method's values, because the recipe's
  were tuned for another one: MAML trains with Adam even if the recipe has a learning rate for SGD;
- method options that the recipe sets carry over if the other method has them too: MoCo takes the
  queue and the momentum of a PsCo recipe. Names that mean different things are listed in
  ``psco.recipes.carry``.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from psco.methods import METHODS
from psco.recipes.choice import default_recipe
from psco.recipes.layers import (
    DEFAULT_METHOD,
    Layer,
    Override,
    Tree,
    method_settings,
    recipe_layers,
    recipe_names,
)
from psco.recipes.schema import (
    ImageSettings,
    Parts,
    Recipe,
    TrainSettings,
    check_recipe,
    read_tree,
)

__all__ = [
    "ImageSettings",
    "Override",
    "Parts",
    "Recipe",
    "ResolvedRecipe",
    "TrainSettings",
    "check_recipe",
    "default_recipe",
    "load_recipe",
    "read_tree",
    "recipe_names",
    "resolve_recipe",
    "with_flags",
]


@dataclass(frozen=True)
class ResolvedRecipe:
    """A recipe and where its values come from.

    Parameters
    ----------
    recipe
        All settings.
    sources
        The source of each value that is not a default, by its path: ``{"method.shots": "--set"}``.
    """

    recipe: Recipe
    sources: dict[str, str]

    def to_yaml(self) -> str:
        """Return the recipe as YAML with the source of each value as a comment."""
        return "".join(f"{line}\n" for line in self._lines(self.recipe.model_dump(mode="json")))

    def _lines(self, settings: dict[str, Any], path: str = "", indent: str = "") -> Iterable[str]:
        for key, value in settings.items():
            place = f"{path}{key}"
            if isinstance(value, dict) and value:
                yield f"{indent}{key}:"
                yield from self._lines(value, f"{place}.", indent + "  ")
            else:
                text = yaml.safe_dump({key: value}, default_flow_style=True, width=2**31)
                source = self.sources.get(place, "default")
                yield f"{indent}{text.strip()[1:-1]}  # {source}"


def load_recipe(recipe: str | Path | Recipe, overrides: Iterable[str | Override] = ()) -> Recipe:
    """Read a recipe and apply overrides.

    Parameters
    ----------
    recipe
        A name from `recipe_names`, the path of a YAML file, or a recipe to change.
    overrides
        Settings as ``"method.shots=5"``; the value is read as YAML.

    Raises
    ------
    InputError
        For an unknown recipe, setting, option or a value that is not allowed.
    """
    return resolve_recipe(recipe, overrides).recipe


def resolve_recipe(
    recipe: str | Path | Recipe, overrides: Iterable[str | Override] = ()
) -> ResolvedRecipe:
    """Read a recipe, apply overrides, and keep the source of each value; see `load_recipe`."""
    given = [Override.parse(o) if isinstance(o, str) else o for o in overrides]
    layers = recipe_layers(recipe)
    method = _chosen_method(layers[-1], given)
    if isinstance(recipe, Recipe) and method != recipe.method.name:
        layers = [_without_default_options(layers[0])]
    tree = Tree()
    defaults = method_settings(method)
    tree.merge(defaults, f"method {method}")
    for layer in layers:
        tree.merge(layer.settings_for(method, defaults), layer.source)
    for override in given:
        tree.set(override)
    source = "in memory" if isinstance(recipe, Recipe) else str(recipe)
    return ResolvedRecipe(check_recipe(tree.plain(), source), tree.sources())


def _chosen_method(layer: Layer, overrides: Iterable[Override]) -> Any:
    """Return the name of the method that the run uses, which need not exist."""
    method = layer.method
    for override in overrides:
        if override.path == "method.name":
            method = override.value
        elif override.path == "method":
            section = override.value
            method = section.get("name") if isinstance(section, dict) else DEFAULT_METHOD
    return method


def _without_default_options(layer: Layer) -> Layer:
    """Leave out the method options of a recipe in memory that nobody may have set."""
    usual = METHODS.options(layer.method, {})
    options = layer.settings["method"].items()
    kept = {name: value for name, value in options if usual.get(name) != value}
    return Layer(layer.source, {**layer.settings, "method": kept}, layer.method)


def with_flags(
    overrides: Iterable[str | Override] = (),
    method: str | None = None,
    epochs: float | None = None,
    steps: int | None = None,
    minutes: float | None = None,
    seed: int | None = None,
    init: str | Path | None = None,
) -> list[str | Override]:
    """Add the settings that have their own flag to overrides; None adds nothing.

    The method comes first, because overrides may change its options. The others come last and win
    over an override of the whole section.
    """
    flags = {
        "train.epochs": epochs,
        "train.steps": steps,
        "train.minutes": minutes,
        "train.seed": seed,
        "init": None if init is None else str(init),
    }
    first = [] if method is None else [Override("method.name", method, "--method")]
    last = [
        Override(path, value, f"--{path.split('.')[-1]}")
        for path, value in flags.items()
        if value is not None
    ]
    return [*first, *overrides, *last]
