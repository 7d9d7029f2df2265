"""Pixel dropout: single pixels take the colour of the paper."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from psco.views.fill import COLOURS, Colour, check_fill, fill_colour
from psco.views.part import check_probability, fresh_generator, uniform


@dataclass(frozen=True)
class Dropout:
    """Paint over single pixels, each with the same probability.

    Parameters
    ----------
    fraction
        Probability that a pixel is painted over, in [0, 1].
    fill
        Its new colour, see `fill_colour`.
    """

    resizes: ClassVar[bool] = False

    fraction: float = 0.5
    fill: Colour = "auto"

    def __post_init__(self) -> None:
        check_probability("dropout", self.fraction, "fraction")
        check_fill("dropout", self.fill, COLOURS)

    def __call__(self, images: Tensor, _size: int, generator: torch.Generator) -> Tensor:
        """Paint over pixels of (B, C, H, W) float32 images; all channels of a pixel together."""
        # A generator of its own, since the number of values depends on the size of the images.
        seed = int(torch.randint(2**32, (), generator=generator))
        own = fresh_generator(seed, generator)
        drawn = uniform(len(images), 1, *images.shape[2:], generator=own)  # (B, 1, H, W)
        hidden = (drawn < self.fraction).to(images.device)
        return torch.where(hidden, fill_colour(images, self.fill), images)
