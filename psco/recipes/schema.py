"""The settings of a run and their checks: types, ranges and names."""

from __future__ import annotations

import hashlib
import json
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
    """A group of settings; an unknown key is an error that names the nearest valid one."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    @model_validator(mode="before")
    @classmethod
    def _known_keys(cls, given: Any) -> Any:
        for key in given if isinstance(given, dict) else ():
            if key not in cls.model_fields:
                raise unknown_name("setting", str(key), cls.model_fields)
        return given


class ImageSettings(Section):
    """Images: ``size`` px for the network, sampled from sources of ``source_size`` px."""

    size: int = Field(28, ge=8)
    source_size: int = Field(28, ge=8)
    test_crop: bool = Field(
        False, description="at test, take the centre of the source instead of shrinking it"
    )
    channels: Literal[1, 3] = 1
    mean: list[float] = [0.5]
    std: list[float] = [0.25]

    @model_validator(mode="after")
    def _one_number_per_channel(self) -> ImageSettings:
        for name, values in {"mean": self.mean, "std": self.std}.items():
            if len(values) != self.channels:
                raise InputError(
                    f"{name} needs one number per channel ({self.channels}), got {values}"
                )
        if min(self.std) <= 0:
            raise InputError(f"std must be > 0, got {self.std}")
        if self.test_crop and self.source_size < self.size:
            raise InputError(
                f"test_crop requires source_size >= size, got {self.source_size} and {self.size}"
            )
        return self


class ViewSettings(Section):
    """The parts of the two views, in order; see ``psco.views`` for their options."""

    view_a: Parts = {}
    view_b: Parts = {}
    at_test: int = Field(
        0,
        ge=0,
        description="random views (as view_b) whose embeddings are averaged with the image's own",
    )

    @field_validator("view_a", "view_b", mode="before")
    @classmethod
    def _complete(cls, parts: Any) -> Any:
        if not isinstance(parts, dict):
            raise InputError(f"a view is a mapping of part names to options, got {parts!r}")
        # A part set to null is left out, as in `--set views.view_a.flip=null`.
        options = {name: VIEW_PARTS.options(name, given or {}) for name, given in parts.items()}
        return {name: options[name] for name, given in parts.items() if given is not None}


class HeadSettings(Section):
    """Sizes of the two-layer heads g (projector) and h (predictor), and whether h exists."""

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
        description="images in the shuffle buffer of tar shards read in order; 0 shuffles all",
    )
    optimizer: Literal["sgd", "adam"] = "sgd"
    learning_rate: float = Field(
        0.03, gt=0, description="SGD: for 256 images a step, scaled linearly; Adam: not scaled"
    )
    decay: Literal["cosine", "halving", "constant"] = "cosine"
    halving_steps: int = Field(2000, ge=1)
    warmup_steps: int = Field(0, ge=0)
    sgd_momentum: float = Field(0.9, ge=0, lt=1)
    weight_decay: float = Field(5e-4, ge=0)
    average_last: float = Field(
        0.0,
        ge=0,
        le=1,
        description="final fraction of the run whose weights are averaged; 0 keeps the last",
    )
    select: Literal["last", "validation"] = Field(
        "last", description="model to keep: the last, or the best on tasks of validation classes"
    )
    select_steps: int = Field(1000, ge=1, description="steps between two validations")
    select_ways: int = Field(5, ge=2, description="classes in a validation task")
    select_shots: int = Field(5, ge=1, description="supports per class of a validation task")
    select_tasks: int = Field(600, ge=1, description="validation tasks, always the same")
    freeze: Literal["backbone"] | None = Field(
        None, description="part that keeps its initial weights; the heads train on cached features"
    )
    frozen_views: int = Field(
        6,
        ge=2,
        description="views of each image that a frozen backbone sees: view_a and view_b in turn",
    )
    precision: Literal["32-true", "bf16-mixed", "16-mixed", "bf16-true", "16-true", "64-true"] = (
        "32-true"
    )
    seed: int = Field(0, ge=0)
    log_steps: int = Field(10, ge=1)
    purity: bool = Field(
        False, description="log pseudo-label purity; needs labels, does not train on them"
    )

    @model_validator(mode="after")
    def _one_length(self) -> TrainSettings:
        lengths = {name: getattr(self, name) for name in LENGTHS}
        if sum(value is not None for value in lengths.values()) != 1:
            raise InputError(f"set exactly one of epochs, steps and minutes, got {lengths}")
        if self.select == "validation" and self.average_last:
            raise InputError(f"average_last requires select=last, got {self.average_last:g}")
        return self


class Named(BaseModel):
    """A registered method or backbone: its ``name``; all other keys are its options."""

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
    init: str | None = Field(
        None, description="initial weights of the backbone: a file or a run folder"
    )
    heads: HeadSettings = HeadSettings()
    method: Named = Field(Named(name="psco"), validate_default=True)
    train: TrainSettings

    @field_validator("backbone", "method", mode="before")
    @classmethod
    def _complete(cls, given: Any, info: Any) -> Any:
        registry: Registry[Any] = BACKBONES if info.field_name == "backbone" else METHODS
        given = given.model_dump() if isinstance(given, Named) else given
        if not isinstance(given, dict) or not isinstance(given.get("name"), str):
            raise InputError(f"needs a name (one of {', '.join(registry)}), got {given!r}")
        options = {key: value for key, value in given.items() if key != "name"}
        return {"name": given["name"], **registry.options(given["name"], options)}

    def to_yaml(self) -> str:
        """Return the whole recipe as YAML, defaults included."""
        text: str = yaml.safe_dump(self.model_dump(mode="json"), sort_keys=False)
        return text

    def hash(self) -> str:
        """Return twelve hexadecimal digits that identify the settings."""
        text = json.dumps(self.model_dump(mode="json"), sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()[:12]


def check_recipe(tree: dict[str, Any], source: str) -> Recipe:
    """Check a tree of settings; ``source`` names it in errors."""
    try:
        return Recipe.model_validate(tree)
    except ValidationError as error:
        raise InputError(f"recipe {source!r}: {first_problem(error)}") from None


def read_tree(text: str, source: str) -> dict[str, Any]:
    """Parse YAML that must be a mapping; ``source`` names it in errors."""
    try:
        tree = yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise InputError(f"{source} is not YAML: {' '.join(str(error).split())}") from None
    if not isinstance(tree, dict):
        raise InputError(f"{source} must be a mapping of settings")
    return tree
