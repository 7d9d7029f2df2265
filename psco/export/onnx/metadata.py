"""The metadata of an ONNX file: what a program needs beside the graph, checked when it is read.

Each field is one entry, whose value is JSON. A last entry, ``checksum``, protects the whole file.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from psco.classifier.model import UNKNOWN
from psco.errors import InputError, PscoError, counted, quoted
from psco.recipes.recipe import ImageSettings
from psco.registry import first_problem

FORMAT = 1
CHECKSUM = "checksum"
INPUT = "images"
Label = bool | int | float | str
_MOST_TEXT = 16_000_000  # characters of all entries
_LABEL = 1000  # characters


class Metadata(BaseModel):
    """Everything about an exported model that is not in its graph.

    Parameters
    ----------
    kind, psco_version, backbone, rule, weights
        What it is, and what wrote it.
    side
        Pictures are passed as (n, side, side, channels) uint8: the centre square, resized.
    size, mean, std, test_crop, views_at_test
        What the graph does with them first: resize or crop to ``size``, normalise, and average
        over this number of views beside the picture itself.
    classes, temperature, threshold, rejects_by, unknown
        Of a classifier. The graph applies temperature and threshold.
    """

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, allow_inf_nan=False)

    psco: Literal[1] = 1
    kind: Literal["encoder", "classifier"]
    psco_version: str = Field(max_length=50)
    backbone: str = Field(max_length=200)
    weights: Literal["float32", "int8"] = "float32"
    side: int = Field(ge=8, le=2048)
    size: int = Field(ge=8, le=2048)
    channels: Literal[1, 3]
    mean: list[float] = Field(min_length=1, max_length=3)
    std: list[float] = Field(min_length=1, max_length=3)
    test_crop: bool = False
    views_at_test: int = Field(0, ge=0, le=256)
    rule: str | None = Field(None, max_length=200)
    classes: list[Label] = Field([], max_length=1_000_000)
    temperature: float | None = Field(None, gt=0)
    threshold: float | None = None
    rejects_by: Literal["similarity", "probability"] | None = None
    unknown: str = Field(UNKNOWN, max_length=_LABEL)

    @model_validator(mode="after")
    def _consistent(self) -> Metadata:
        self.image()  # checks the numbers of channels
        if (self.kind == "classifier") != bool(self.classes) or bool(self.classes) != bool(
            self.temperature
        ):
            raise InputError(f"a {self.kind} with {counted(len(self.classes), 'class')}")
        if (self.threshold is None) != (self.rejects_by is None):
            raise InputError("threshold and rejects_by belong together")
        long = next((c for c in self.classes if isinstance(c, str) and len(c) > _LABEL), None)
        if long is not None:
            raise InputError(f"a label longer than {_LABEL} characters: {quoted(long)}")
        return self

    def image(self) -> ImageSettings:
        """Return the settings that pictures are decoded with."""
        return ImageSettings(
            size=self.size,
            source_size=self.side,
            test_crop=self.test_crop,
            channels=self.channels,
            mean=self.mean,
            std=self.std,
        )

    def entries(self) -> dict[str, str]:
        """Return the entries of the file."""
        return {name: json.dumps(value) for name, value in self.model_dump().items()}

    def summary(self) -> str:
        """Return in one line what the file holds."""
        bits = "8-bit weights" if self.weights == "int8" else "float32"
        views = f", {counted(self.views_at_test, 'view')} at test" if self.views_at_test else ""
        what = f"{self.kind} {self.backbone}"
        if self.classes:
            what += f", {counted(len(self.classes), 'class')}, rule {self.rule}"
        return f"{what}, {self.side} px{views}, {bits}"


def read_metadata(entries: Mapping[str, str], source: str) -> Metadata:
    """Return the metadata in the entries of a file; ``source`` names it in errors.

    Raises
    ------
    InputError
        If psco did not write the file.
    PscoError
        If an entry is not what psco writes, or the format is another.
    """
    if "psco" not in entries or "kind" not in entries:
        raise InputError(f"{source} is not a model of psco; psco export writes one")
    if entries["psco"] != str(FORMAT):
        raise PscoError(
            f"{source} has format {quoted(entries['psco'])} and this psco reads {FORMAT}; install "
            f"the psco that wrote it, or export again"
        )
    if sum(map(len, entries.values())) > _MOST_TEXT:
        raise PscoError(f"{source} has more than {_MOST_TEXT:,} characters of metadata")
    try:
        fields: dict[str, Any] = {
            name: json.loads(text) for name, text in entries.items() if name != CHECKSUM
        }
        return Metadata.model_validate(fields)
    except ValidationError as error:
        raise PscoError(f"{source} is damaged: {first_problem(error)}") from None
    except (ValueError, RecursionError) as error:
        reason = "its metadata are not JSON" if not isinstance(error, InputError) else str(error)
        raise PscoError(f"{source} is damaged: {reason}; export again") from None
