"""The header of a classifier file: every field has a type and bounds, and fits the tensors.

A checksum shows that a file is what was written, not who wrote it. Everything here is checked
before anything is allocated by it.
"""

from __future__ import annotations

import json
from typing import Any, Literal

import numpy as np
import torch
from pydantic import BaseModel, ConfigDict, Field, ValidationError
from torch import Tensor

from psco.errors import InputError, quoted
from psco.registry import first_problem

_LABEL_KINDS = "UbiufO"
_MAX_STEPS = 10_000


class Parameters(BaseModel):
    """The parameters of the estimator's constructor that a file holds."""

    model_config = ConfigDict(extra="forbid", allow_inf_nan=False, strict=True)

    rule: str
    rule_options: dict[str, Any] | None = None
    adapt_steps: int = Field(0, ge=0, le=_MAX_STEPS)
    temperature: Literal["auto"] | float | int = "auto"
    reject_below: Literal["auto"] | float | int | None = None
    random_state: int | None = None


class About(BaseModel):
    """The header of a classifier file; see ``psco.classifier.storage``."""

    model_config = ConfigDict(extra="ignore", allow_inf_nan=False, strict=True)

    parameters: Parameters
    recipe: dict[str, Any] | None
    labels: list[str | bool | int | float] = Field(min_length=1)
    label_type: str = Field(max_length=20)
    names: list[str]
    temperature: float = Field(gt=0)
    threshold: float | None
    calibration: dict[str, Any] | None

    def label_array(self) -> np.ndarray:
        """Return the labels (S,) in their type; InputError if they do not have it."""
        try:
            dtype = np.dtype(self.label_type)
        except (TypeError, ValueError, SyntaxError):
            dtype = np.dtype("V1")
        longest = max((len(label) for label in self.labels if isinstance(label, str)), default=1)
        kind = dtype.kind
        if kind not in _LABEL_KINDS or (kind == "U" and dtype.itemsize > 4 * max(1, longest)):
            raise InputError(f"label_type is {quoted(self.label_type)}")
        try:
            return np.array(self.labels, dtype=dtype)
        except (TypeError, ValueError, OverflowError):
            raise InputError(f"its labels are not of the type {quoted(self.label_type)}") from None


def read_about(text: str) -> About:
    """Parse the header; InputError names the first field that is wrong."""
    try:
        about: About = About.model_validate(json.loads(text))
    except ValidationError as error:
        raise InputError(first_problem(error)) from None
    except (ValueError, RecursionError):
        raise InputError("its description is not JSON") from None
    return about


def check_tensors(about: About, tensors: dict[str, Tensor]) -> None:
    """Raise InputError unless the supports are finite tables with one row for each label."""
    rows = len(about.labels)
    if len(about.names) != rows:
        raise InputError(f"it has {rows} labels and {len(about.names)} names")
    parts = ("features",) if about.recipe is None else ("features", "support", "query")
    for name in (f"shots.{part}" for part in parts):
        table = tensors.get(name)
        if table is None or table.ndim != 2 or len(table) != rows or not table.shape[1]:
            raise InputError(f"{name} is not a table with {rows} rows")
        if not table.is_floating_point() or not table.isfinite().all():
            raise InputError(f"{name} has values that are not finite numbers")
    pictures = tensors.get("shots.pictures")
    if pictures is not None and (
        pictures.dtype != torch.uint8 or pictures.ndim != 4 or len(pictures) != rows
    ):
        raise InputError(f"shots.pictures are not {rows} pictures")
