"""Encoders that need no training, by name: ``psco fit handwriting my-samples -o x.psco``."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from psco.errors import PscoError, quoted, unknown_name
from psco.files.checksums import hash_file
from psco.networks.published import PUBLISHED, PublishedWeights
from psco.recipes.recipe import Recipe, load_recipe

MODELS = Path(__file__).parent.parent / "models"
_MODEL = "model.safetensors"


@dataclass(frozen=True)
class BuiltIn:
    """An encoder that is ready for use.

    Parameters
    ----------
    summary
        What it is good for, in one line.
    trained_on
        Data that it was trained on.
    licence
        Terms of its weights.
    """

    summary: str
    trained_on: str
    licence: str

    @property
    def missing(self) -> str | None:
        """What is missing and how to install it; None if nothing is."""
        return None


@dataclass(frozen=True)
class PublishedEncoder(BuiltIn):
    """A backbone with published weights, which another package installs.

    Parameters
    ----------
    weights
        The published weights.
    base, overrides
        Recipe of the encoder, and what is changed in it.
    """

    weights: PublishedWeights
    base: str
    overrides: tuple[str, ...]

    @property
    def missing(self) -> str | None:
        """What is missing and how to install it; None if nothing is."""
        return None if self.weights.is_installed else self.weights.missing

    def recipe(self) -> Recipe:
        """Return the settings of the encoder."""
        return load_recipe(self.base, self.overrides)


@dataclass(frozen=True)
class PackagedRun(BuiltIn):
    """A run folder that is part of this package, with its calibration and a card.

    Parameters
    ----------
    name
        Of the folder in ``psco/models``.
    sha256
        Hash of its weights.
    """

    name: str
    sha256: str

    def find(self) -> Path:
        """Return the folder.

        Raises
        ------
        PscoError
            If its weights are missing or are not those of the package.
        """
        weights = MODELS / self.name / _MODEL
        if not weights.is_file() or hash_file(weights) != self.sha256:
            raise PscoError(
                f"{quoted(weights)} is missing or is not the file of this package (its sha256 "
                f"differs); reinstall psco"
            )
        return weights.parent


BUILT_IN: dict[str, PublishedEncoder | PackagedRun] = {
    "handwriting": PackagedRun(
        summary="characters and small drawings; Conv4 at 28 px, trained on Omniglot without labels",
        trained_on="omniglot",
        licence="MIT",
        name="handwriting",
        sha256="9dd548eba8f5de156a8c83c0bfb8a44c68a7c488f1415f1a8320291730850bef",
    ),
    "imagenet": PublishedEncoder(
        summary="photographs; EfficientNet-Lite0, trained on ImageNet with labels",
        trained_on="imagenet",
        licence=PUBLISHED["imagenet"].licence,
        weights=PUBLISHED["imagenet"],
        base="own-photos-frozen",
        overrides=("method.name=pretrained", "views.at_test=0"),
    ),
}


def built_in(name: str) -> PublishedEncoder | PackagedRun:
    """Return a built-in encoder; InputError if there is none of that name."""
    if name not in BUILT_IN:
        raise unknown_name("built-in encoder", name, BUILT_IN)
    return BUILT_IN[name]
