"""Flips and rotations by multiples of 90 degrees."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from psco.errors import InputError
from psco.views.motion import LinearMotion, Motion, Mover
from psco.views.part import bernoulli, check_probability, integers, per_image


@dataclass(frozen=True)
class Flip(Mover):
    """Flip horizontally, and optionally vertically.

    Parameters
    ----------
    probability
        Probability of a horizontal flip.
    vertical
        Probability of a vertical flip.
    """

    resizes: ClassVar[bool] = False

    probability: float = 0.5
    vertical: float = 0.0

    def __post_init__(self) -> None:
        check_probability("flip", self.probability)
        check_probability("flip", self.vertical, "vertical")

    def __call__(self, images: Tensor, _size: int, generator: torch.Generator) -> Tensor:
        """Flip (B, C, H, W) float32 images."""
        for axis, flipped in self._draw(len(images), generator).items():
            images = torch.where(per_image(flipped, images), images.flip(axis), images)
        return images

    def draw_motion(
        self, count: int, _height: int, _width: int, generator: torch.Generator
    ) -> Motion:
        """Draw which axes are flipped."""
        matrix = torch.eye(2, 3).repeat(count, 1, 1)
        for axis, flipped in self._draw(count, generator).items():
            coordinate = 3 - axis  # x comes first in a point and last in an image
            matrix[flipped, coordinate, coordinate] = -1
        return LinearMotion(matrix)

    def _draw(self, count: int, generator: torch.Generator) -> dict[int, Tensor]:
        """Draw for each axis of a batch which images (B,) are flipped."""
        flipped = {3: bernoulli(count, self.probability, generator)}
        if self.vertical > 0:
            flipped[2] = bernoulli(count, self.vertical, generator)
        return flipped


@dataclass(frozen=True)
class Turn(Mover):
    """Rotate by 0, 90, 180 or 270 degrees with equal probability, without interpolation.

    Parameters
    ----------
    probability
        Probability that an image takes part.
    """

    resizes: ClassVar[bool] = False

    probability: float = 1.0

    def __post_init__(self) -> None:
        check_probability("turn", self.probability)

    def __call__(self, images: Tensor, _size: int, generator: torch.Generator) -> Tensor:
        """Rotate (B, C, H, H) float32 images.

        Raises
        ------
        InputError
            If the images are not square.
        """
        height, width = images.shape[2:]
        if height != width:
            raise InputError(
                f"turn: images must be square, not {height} x {width} px; put crop before turn"
            )
        quarters = per_image(self._draw(len(images), generator), images)
        rotated = torch.where(quarters % 2 == 1, images.rot90(1, (2, 3)), images)
        return torch.where(quarters >= 2, rotated.flip((2, 3)), rotated)

    def draw_motion(
        self, count: int, _height: int, _width: int, generator: torch.Generator
    ) -> Motion:
        """Draw the rotation of each image."""
        rotations = torch.tensor(
            [[[1, 0], [0, 1]], [[0, -1], [1, 0]], [[-1, 0], [0, -1]], [[0, 1], [-1, 0]]]
        )
        matrix = rotations[self._draw(count, generator)].float()  # (B, 2, 2)
        return LinearMotion(torch.cat([matrix, torch.zeros(count, 2, 1)], 2))

    def _draw(self, count: int, generator: torch.Generator) -> Tensor:
        """Draw the number of quarter turns, anticlockwise: (B,)."""
        quarters = integers(4, count, generator)
        return torch.where(bernoulli(count, self.probability, generator), quarters, 0)
