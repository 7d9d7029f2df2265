"""Recipes: everything that decides a training run, as one checked tree of settings.

Levels, the later one winning: the defaults in this file and in the constructors of methods,
backbones and view parts; the recipe's YAML file; where another method than the recipe's is chosen,
what that method changes in every recipe (``recipes/methods``); ``--set a.b=c`` and the flags of the
command line.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable
from importlib import resources
from pathlib import Path
from typing import Any, Literal

import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator, model_validator

from psco.errors import InputError, unknown_name
from psco.methods import METHODS
from psco.networks import BACKBONES
from psco.registry import Registry, first_problem
from psco.views import VIEW_PARTS

Parts = dict[str, dict[str, Any]]
LENGTHS = ("epochs", "steps", "minutes")


class Section(BaseModel):
    """A group of settings; a key that does not exist is an error with the nearest valid name."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    @model_validator(mode="before")
    @classmethod
    def _known_keys(cls, given: Any) -> Any:
        for key in given if isinstance(given, dict) else ():
            if key not in cls.model_fields:
                raise unknown_name("setting", str(key), cls.model_fields)
        return given


class ImageSettings(Section):
    """What an image is: ``size`` px for the network, cut from sources of ``source_size`` px."""

    size: int = Field(28, ge=8)
    source_size: int = Field(28, ge=8)
    channels: Literal[1, 3] = 1
    mean: list[float] = [0.5]
    std: list[float] = [0.25]

    @model_validator(mode="after")
    def _one_number_per_channel(self) -> ImageSettings:
        for name, values in {"mean": self.mean, "std": self.std}.items():
            if len(values) != self.channels:
                raise InputError(f"{name} needs {self.channels} numbers (channels), not {values}")
        if min(self.std) <= 0:
            raise InputError(f"std must be > 0, not {self.std}")
        return self


class ViewSettings(Section):
    """The parts of the two views, in order; see ``psco.views`` for their options."""

    view_a: Parts = {}
    view_b: Parts = {}
    at_test: int = Field(
        0,
        ge=0,
        description="views of kind b whose embeddings are averaged with that of the image itself",
    )

    @field_validator("view_a", "view_b", mode="before")
    @classmethod
    def _complete(cls, parts: Any) -> Any:
        if not isinstance(parts, dict):
            raise InputError(f"a view is a mapping of part names to options, not {parts!r}")
        # A part set to null is switched off: `--set views.view_a.flip=null`.
        return {n: VIEW_PARTS.options(n, o) for n, o in parts.items() if o is not None}


class HeadSettings(Section):
    """Sizes of the two-layer heads g and h, and whether there is an h."""

    hidden: int = Field(2048, ge=1)
    out: int = Field(128, ge=1)
    predictor: bool = True


class TrainSettings(Section):
    """Length, optimiser and logging; exactly one of epochs, steps and minutes is set."""

    epochs: float | None = Field(None, gt=0)
    steps: int | None = Field(None, gt=0)
    minutes: float | None = Field(None, gt=0)
    batch_size: int = Field(256, ge=2)
    accumulate: int = Field(1, ge=1)
    shuffle_buffer: int = Field(
        0,
        ge=0,
        description="of tar shards that are read end to end, in images; 0: shuffle all",
    )
    optimizer: Literal["sgd", "adam"] = "sgd"
    learning_rate: float = Field(
        0.03, gt=0, description="of SGD for 256 images a step, scaled linearly; of Adam as it is"
    )
    decay: Literal["cosine", "halving", "constant"] = "cosine"
    halving_steps: int = Field(2000, ge=1)
    warmup_steps: int = Field(0, ge=0)
    sgd_momentum: float = Field(0.9, ge=0, lt=1)
    weight_decay: float = Field(5e-4, ge=0)
    average_last: float = Field(
        0.0, ge=0, le=1, description="share of the run, at its end, whose mean weights are kept"
    )
    precision: Literal["32-true", "bf16-mixed", "16-mixed", "bf16-true", "16-true", "64-true"] = (
        "32-true"
    )
    seed: int = Field(0, ge=0)
    log_steps: int = Field(10, ge=1)
    purity: bool = Field(False, description="log pseudo-label purity; needs labels, learns nothing")

    @model_validator(mode="after")
    def _one_length(self) -> TrainSettings:
        lengths = {name: getattr(self, name) for name in LENGTHS}
        if sum(value is not None for value in lengths.values()) != 1:
            raise InputError(f"set exactly one of epochs, steps and minutes, not {lengths}")
        return self


class Named(BaseModel):
    """A registered thing by ``name``; all other keys are its options."""

    model_config = ConfigDict(extra="allow", frozen=True)

    name: str

    @property
    def options(self) -> dict[str, Any]:
        """All options, defaults included."""
        return dict(self.model_extra or {})


class Recipe(Section):
    """All settings of a run."""

    image: ImageSettings = ImageSettings()
    views: ViewSettings = ViewSettings()
    backbone: Named = Field(Named(name="conv4"), validate_default=True)
    init: str | None = Field(None, description="initial weights of the backbone: file, run folder")
    heads: HeadSettings = HeadSettings()
    method: Named = Field(Named(name="psco"), validate_default=True)
    train: TrainSettings

    @field_validator("backbone", "method", mode="before")
    @classmethod
    def _complete(cls, given: Any, info: Any) -> Any:
        registry: Registry[Any] = BACKBONES if info.field_name == "backbone" else METHODS
        given = given.model_dump() if isinstance(given, Named) else given
        if not isinstance(given, dict) or not isinstance(given.get("name"), str):
            raise InputError(f"needs a name (one of {', '.join(registry)}), not {given!r}")
        options = {key: value for key, value in given.items() if key != "name"}
        return {"name": given["name"], **registry.options(given["name"], options)}

    def to_yaml(self) -> str:
        """Write the whole recipe, defaults included."""
        text: str = yaml.safe_dump(self.model_dump(mode="json"), sort_keys=False)
        return text

    def hash(self) -> str:
        """Identify the settings by twelve hexadecimal digits."""
        text = json.dumps(self.model_dump(mode="json"), sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()[:12]


def recipe_names() -> list[str]:
    """List the recipes that come with the package."""
    return sorted(f.name[:-5] for f in _folder().iterdir() if f.name.endswith(".yaml"))


def default_recipe(data: object) -> str:
    """Give the recipe of a named data set, else ``own-images``."""
    return str(data) if str(data) in recipe_names() else "own-images"


def load_recipe(recipe: str | Path | Recipe, overrides: Iterable[str] = ()) -> Recipe:
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
    source = "given" if isinstance(recipe, Recipe) else str(recipe)
    tree = recipe.model_dump() if isinstance(recipe, Recipe) else _read(source)
    overrides = list(overrides)
    _adopt_method(tree, overrides)
    for override in overrides:
        _apply(tree, override)
    return check_recipe(tree, source)


def with_flags(
    overrides: Iterable[str] = (),
    method: str | None = None,
    epochs: float | None = None,
    steps: int | None = None,
    minutes: float | None = None,
    seed: int | None = None,
    init: str | Path | None = None,
) -> list[str]:
    """Add the settings that have a flag of their own to overrides; None adds nothing.

    The method comes first, since the overrides may change its options; all others come last, and
    win over an override of the whole section.
    """
    before = [] if method is None else [f"method.name={method}"]
    given = {
        "train.epochs": epochs,
        "train.steps": steps,
        "train.minutes": minutes,
        "train.seed": seed,
        "init": None if init is None else json.dumps(str(init)),  # a path may look like YAML
    }
    after = [f"{name}={value}" for name, value in given.items() if value is not None]
    return [*before, *overrides, *after]


def check_recipe(tree: dict[str, Any], source: str) -> Recipe:
    """Check a tree of settings; ``source`` names it in errors."""
    try:
        return Recipe.model_validate(tree)
    except ValidationError as error:
        raise InputError(f"recipe {source!r}: {first_problem(error)}") from None


def _read(source: str) -> dict[str, Any]:
    if source in recipe_names():
        text = _folder().joinpath(f"{source}.yaml").read_text()
    elif source.endswith((".yaml", ".yml")):
        if not Path(source).is_file():
            raise InputError(f"there is no recipe file {source!r}")
        text = Path(source).read_text()
    else:
        raise unknown_name("recipe", source, recipe_names())
    return read_tree(text, f"recipe {source!r}")


def read_tree(text: str, source: str) -> dict[str, Any]:
    """Parse YAML that must be a mapping; ``source`` names it in errors."""
    try:
        tree = yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise InputError(f"{source} is not YAML: {' '.join(str(error).split())}") from None
    if not isinstance(tree, dict):
        raise InputError(f"{source} must be a mapping of settings")
    return tree


def _adopt_method(tree: dict[str, Any], overrides: Iterable[str]) -> None:
    """Let the method that the recipe or an override names change what it has to."""
    own = tree.get("method") or {"name": "psco"}
    chosen: dict[str, Any] = {"method": own}
    for override in overrides:
        if override.startswith(("method=", "method.name=")):
            chosen["method"] = dict(own) if isinstance(own, dict) else {}
            _apply(chosen, override)
    before, name = (m.get("name") if isinstance(m, dict) else None for m in (own, chosen["method"]))
    if name != before:
        tree["method"] = {"name": name, **_options_to_keep(own, before, name)}
    changes = _folder() / "methods" / f"{name}.yaml"
    if not changes.is_file():
        return
    for section, settings in read_tree(changes.read_text(), f"method {name!r}").items():
        there = tree.get(section) or {}
        tree[section] = {**settings, **there} if name == before else {**there, **settings}


def _options_to_keep(own: Any, before: Any, name: Any) -> dict[str, Any]:
    """Give what a variant of the recipe's method, a subclass, takes over; others take nothing."""
    if before not in METHODS or name not in METHODS:
        return {}
    variant, origin = METHODS[name], METHODS[before]
    if not (isinstance(variant, type) and isinstance(origin, type) and issubclass(variant, origin)):
        return {}
    usual = METHODS.options(before, {})
    return {key: value for key, value in own.items() if key in usual and value != usual[key]}


def _apply(tree: dict[str, Any], override: str) -> None:
    path, equals, value = override.partition("=")
    if not equals or not path:
        raise InputError(f"--set takes a.b=c, such as method.shots=5, not {override!r}")
    *parents, last = path.strip().split(".")
    if parents == ["train"] and last in LENGTHS:  # the new length replaces the recipe's
        tree["train"] = {k: v for k, v in tree.get("train", {}).items() if k not in LENGTHS}
    for key in parents:
        tree = tree.setdefault(key, {})
        if not isinstance(tree, dict):
            raise InputError(f"--set {override!r}: {key!r} is a value, it has no settings inside")
    try:
        tree[last] = yaml.safe_load(value)
    except yaml.YAMLError:
        raise InputError(f"--set {override!r}: {value!r} is not a YAML value") from None


def _folder() -> Any:
    return resources.files("psco.recipes")
