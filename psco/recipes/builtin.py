"""Encoders that need no training, by name: ``psco fit imagenet my-labelled -o x.psco``."""

from __future__ import annotations

from dataclasses import dataclass

from psco.errors import unknown_name
from psco.networks.published import PUBLISHED, PublishedWeights
from psco.recipes.recipe import Recipe, load_recipe


@dataclass(frozen=True)
class BuiltIn:
    """An encoder with published weights.

    Parameters
    ----------
    summary
        What it is good for, in one line.
    weights
        The published weights.
    base, overrides
        Recipe of the encoder, and what is changed in it.
    trained_on
        Data that it was trained on.
    """

    summary: str
    weights: PublishedWeights
    base: str
    overrides: tuple[str, ...]
    trained_on: str

    def recipe(self) -> Recipe:
        """Return the settings of the encoder."""
        return load_recipe(self.base, self.overrides)


BUILT_IN = {
    "imagenet": BuiltIn(
        summary="photographs; EfficientNet-Lite0, trained on ImageNet with labels",
        weights=PUBLISHED["imagenet"],
        base="own-photos-frozen",
        overrides=("method.name=pretrained", "views.at_test=0"),
        trained_on="imagenet",
    )
}


def built_in(name: str) -> BuiltIn:
    """Return a built-in encoder; InputError if there is none of that name."""
    if name not in BUILT_IN:
        raise unknown_name("built-in encoder", name, BUILT_IN)
    return BUILT_IN[name]
