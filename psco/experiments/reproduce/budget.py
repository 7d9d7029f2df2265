"""How long the runs of a table are trained."""

from __future__ import annotations

import re
from dataclasses import dataclass

from psco.errors import InputError
from psco.recipes.recipe import TrainSettings

PAPER = "paper"
_FLAGS = {"e": "train.epochs", "m": "train.minutes"}


@dataclass(frozen=True)
class Budget:
    """The length of every run.

    Parameters
    ----------
    text
        ``paper`` for the length of the recipe, ``40e`` for 40 epochs, ``10m`` for 10 minutes.

    Raises
    ------
    InputError
        For any other text.
    """

    text: str = PAPER

    def __post_init__(self) -> None:
        match = re.fullmatch(r"(\d+(?:\.\d+)?)([em])", self.text)
        if self.text != PAPER and (not match or float(match[1]) <= 0):
            raise InputError(
                f"--budget takes paper, epochs such as 40e or minutes such as 10m, "
                f"not {self.text!r}"
            )

    @property
    def overrides(self) -> list[str]:
        """The settings that set this length."""
        if self.text == PAPER:
            return []
        return [f"{_FLAGS[self.text[-1]]}={self.text[:-1]}"]


def fraction_done(full: TrainSettings, steps: int, epochs: float) -> float | None:
    """Return a length as a fraction of the whole recipe; None if that is limited by time."""
    if full.epochs is not None:
        return epochs / full.epochs
    return None if full.steps is None else steps / full.steps
