"""The settings of a run and their checks: types, ranges and names."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any, Literal

import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator, model_validator

from psco.errors import InputError, quoted, unknown_name
from psco.files.limited_yaml import parse_yaml, read_yaml
from psco.methods import METHODS
from psco.networks import BACKBONES
from psco.registry import Registry, first_problem
from psco.views import VIEW_PARTS

Parts = dict[str, dict[str, Any]]
LENGTHS = ("epochs", "steps", "minutes")


class Section(BaseModel):
    """A group of settings; an unknown key is an error that names the nearest valid one."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)

    @model_validator(mode="before")
    @classmethod
    def _known_keys(cls, given: Any) -> Any:
        for key in given if isinstance(given, dict) else ():
            if key not in cls.model_fields:
                raise unknown_name("setting", str(key), cls.model_fields)
        return given


class ImageSettings(Section):
    """Images: ``size`` px for the network, sampled from sources of ``source_size`` px."""

    size: int = Field(28, ge=8, le=1024)
    source_size: int = Field(28, ge=8, le=4096)
    aspect: float = Field(
        1.0,
        ge=0.25,
        le=4,
        description="width over height of the sources in training; 1 is the centre square",
    )
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
    count: int = Field(
        2, ge=2, description="views of an image: count - 1 online ones (view_a) and one view_b"
    )
    shared_flip: float = Field(
        0.0, ge=0, le=1, description="probability of a flip that all views of an image share"
    )
    at_test: int = Field(
        0,
        ge=0,
        le=1000,
        description="random views (as view_b) whose embeddings are averaged with the image's own",
    )

    @field_validator("view_a", "view_b", mode="before")
    @classmethod
    def _complete(cls, parts: Any) -> Any:
        if not isinstance(parts, dict):
            raise InputError(f"a view is a mapping of part names to options, got {quoted(parts)}")
        # A part set to null is left out, as in `--set views.view_a.flip=null`.
        options = {name: VIEW_PARTS.options(name, given or {}) for name, given in parts.items()}
        return {name: options[name] for name, given in parts.items() if given is not None}


class HeadSettings(Section):
    """Sizes of the two-layer heads g (projector) and h (predictor), and whether h exists."""

    hidden: int = Field(2048, ge=1, le=1_000_000)
    out: int = Field(128, ge=1, le=1_000_000)
    predictor: bool = True


class TrainSettings(Section):
    """Length, optimiser and logging; exactly one of epochs, steps and minutes is set."""

    epochs: float | None = Field(None, gt=0, le=1e9)
    steps: int | None = Field(None, gt=0, le=10**12)
    minutes: float | None = Field(None, gt=0, le=1e9)
    batch_size: int = Field(256, ge=2, le=1_000_000)
    accumulate: int = Field(1, ge=1, le=1_000_000)
    shuffle_buffer: int = Field(
        0,
        ge=0,
        le=10**9,
        description="images in the shuffle buffer of tar shards read in order; 0 shuffles all",
    )
    optimizer: Literal["sgd", "adam", "adamw"] = "sgd"
    learning_rate: float = Field(
        0.03, gt=0, description="SGD: for 256 images a step, scaled linearly; others: not scaled"
    )
    decay: Literal["cosine", "halving", "constant"] = "cosine"
    halving_steps: int = Field(2000, ge=1, le=10**12)
    warmup_steps: int = Field(0, ge=0, le=10**12)
    warmup: float = Field(
        0.0, ge=0, le=0.5, description="fraction of the run that warms up, instead of warmup_steps"
    )
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
    select_steps: int = Field(1000, ge=1, le=10**12, description="steps between two validations")
    select_ways: int = Field(5, ge=2, le=10_000, description="classes in a validation task")
    select_shots: int = Field(
        5, ge=1, le=10_000, description="supports per class of a validation task"
    )
    select_tasks: int = Field(
        600, ge=1, le=1_000_000, description="validation tasks, always the same"
    )
    freeze: Literal["backbone"] | None = Field(
        None, description="part that keeps its initial weights; the heads train on cached features"
    )
    frozen_views: int = Field(
        6,
        ge=2,
        le=1000,
        description="views of each image that a frozen backbone sees: view_a and view_b in turn",
    )
    freeze_blocks: int = Field(
        0, ge=0, description="first blocks of a ConvNet that are not trained late in the run"
    )
    freeze_from: float = Field(
        0.6, gt=0, lt=1, description="fraction of the run after which freeze_blocks holds"
    )
    small_size: int | None = Field(
        None, ge=8, description="side of the views early in the run, in pixels; null: image.size"
    )
    small_until: float = Field(
        0.75, gt=0, lt=1, description="fraction of the run up to which small_size holds"
    )
    precision: Literal["32-true", "bf16-mixed", "16-mixed", "bf16-true", "16-true", "64-true"] = (
        "32-true"
    )
    seed: int = Field(0, ge=0, lt=2**63)
    log_steps: int = Field(10, ge=1, le=10**12)
    purity: bool = Field(
        False, description="log pseudo-label purity; needs labels, does not train on them"
    )

    @model_validator(mode="after")
    def _one_length(self) -> TrainSettings:
        lengths = {name: getattr(self, name) for name in LENGTHS}
        if sum(value is not None for value in lengths.values()) != 1:
            raise InputError(f"set exactly one of epochs, steps and minutes, got {lengths}")
        if self.warmup and self.warmup_steps:
            raise InputError(
                f"set one of warmup and warmup_steps, got {self.warmup:g} and {self.warmup_steps}"
            )
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
            raise InputError(f"needs a name (one of {', '.join(registry)}), got {quoted(given)}")
        options = {key: value for key, value in given.items() if key != "name"}
        return {"name": given["name"], **registry.options(given["name"], options)}

    @model_validator(mode="after")
    def _small_is_small(self) -> Recipe:
        small, size = self.train.small_size, self.image.size
        if small is not None and small >= size:
            raise InputError(f"train.small_size must be less than image.size, {size}, got {small}")
        return self

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


def read_tree(text: str | Path, source: str) -> dict[str, Any]:
    """Parse YAML, a text or a file, that must be a mapping; ``source`` names it in errors."""
    tree = read_yaml(text, source) if isinstance(text, Path) else parse_yaml(text, source)
    if not isinstance(tree, dict):
        raise InputError(f"{source} must be a mapping of settings")
    return tree
