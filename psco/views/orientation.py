"""Which way round a view is: mirrored, upside down, turned by quarters."""

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
    """Mirror left and right, and perhaps top and bottom.

    Parameters
    ----------
    probability
        How likely left and right are exchanged.
    vertical
        How likely top and bottom are exchanged.
    """

    resizes: ClassVar[bool] = False

    probability: float = 0.5
    vertical: float = 0.0

    def __post_init__(self) -> None:
        check_probability("flip", self.probability)
        check_probability("flip", self.vertical, "vertical")

    def __call__(self, images: Tensor, size: int, generator: torch.Generator) -> Tensor:  # noqa: ARG002
        """Mirror (B, C, H, W) float32 images."""
        for axis, mirrored in self._draw(len(images), generator).items():
            images = torch.where(per_image(mirrored, images), images.flip(axis), images)
        return images

    def draw_motion(
        self,
        count: int,
        height: int,  # noqa: ARG002
        width: int,  # noqa: ARG002
        generator: torch.Generator,
    ) -> Motion:
        """Draw which axes are mirrored."""
        matrix = torch.eye(2, 3).repeat(count, 1, 1)
        for axis, mirrored in self._draw(count, generator).items():
            coordinate = 3 - axis  # x comes first in a point and last in an image
            matrix[mirrored, coordinate, coordinate] = -1
        return LinearMotion(matrix)

    def _draw(self, count: int, generator: torch.Generator) -> dict[int, Tensor]:
        """Draw which images (B,) are mirrored along which axis of a batch."""
        mirrored = {3: bernoulli(count, self.probability, generator)}
        if self.vertical > 0:
            mirrored[2] = bernoulli(count, self.vertical, generator)
        return mirrored


@dataclass(frozen=True)
class Turn(Mover):
    """Turn by no, one, two or three quarters, each as likely; no pixel is interpolated.

    Parameters
    ----------
    probability
        How likely an image takes part; 1 makes all four ways round equally likely.
    """

    resizes: ClassVar[bool] = False

    probability: float = 1.0

    def __post_init__(self) -> None:
        check_probability("turn", self.probability)

    def __call__(self, images: Tensor, size: int, generator: torch.Generator) -> Tensor:  # noqa: ARG002
        """Turn (B, C, H, H) float32 images.

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
        turned = torch.where(quarters % 2 == 1, images.rot90(1, (2, 3)), images)
        return torch.where(quarters >= 2, turned.flip((2, 3)), turned)

    def draw_motion(
        self,
        count: int,
        height: int,  # noqa: ARG002
        width: int,  # noqa: ARG002
        generator: torch.Generator,
    ) -> Motion:
        """Draw how far each image is turned."""
        ways = torch.tensor(
            [[[1, 0], [0, 1]], [[0, -1], [1, 0]], [[-1, 0], [0, -1]], [[0, 1], [-1, 0]]]
        )
        matrix = ways[self._draw(count, generator)].float()  # (B, 2, 2)
        return LinearMotion(torch.cat([matrix, torch.zeros(count, 2, 1)], 2))

    def _draw(self, count: int, generator: torch.Generator) -> Tensor:
        """Draw the number of quarters, anticlockwise: (B,)."""
        quarters = integers(4, count, generator)
        return torch.where(bernoulli(count, self.probability, generator), quarters, 0)
