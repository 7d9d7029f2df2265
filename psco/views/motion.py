"""Where the pixels of a view come from: motions of points, which follow one another.

Points live in a frame of their own: x to the right and y down, with the central square of an image
from -1 to 1 along both axes, so that half its side is the unit. A motion takes every point of the
image that a part gives to the point of the image it gets whose content appears there. Parts in a
row are undone from the last to the first, and only the result is looked up in the image.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar, TypeAlias

import torch
import torch.nn.functional as F
from torch import Tensor

Motion: TypeAlias = Callable[[Tensor], Tensor]
"""From points (B, 2, h, w), or (1, 2, h, w) that all images share, to points (B, 2, h, w)."""


class Mover(ABC):
    """A part of a view that only moves pixels, so that movers in a row can be applied in one go.

    ``warps`` says whether the pixels it asks for lie between those of the image, as after a
    rotation; such parts bring images to the side of the view and have an option ``fill`` for what
    lies outside. Other movers work without interpolation if no warp is next to them.
    """

    warps: ClassVar[bool] = False

    @property
    def enlargement(self) -> float:
        """How many times larger the part may show the content, at least 1."""
        return 1.0

    @abstractmethod
    def draw_motion(
        self, count: int, height: int, width: int, generator: torch.Generator
    ) -> Motion:
        """Draw the motions of ``count`` images of ``height`` x ``width`` pixels."""


def view_points(size: int, per_side: int, device: torch.device) -> Tensor:
    """Give the points at which a view is sampled: ``per_side`` squared in each of its pixels.

    Returns
    -------
    Tensor
        (1, 2, per_side ** 2 * size, size), x and y: first a point of every pixel, then the next
        of every pixel, so that averaging them is a mean over blocks of rows.
    """
    inside = (torch.arange(per_side, device=device) + 0.5) / per_side  # (k,), in pixels
    pixels = torch.arange(size, device=device)
    line = (inside[:, None] + pixels) * (2 / size) - 1  # (k, s)
    shape = (per_side, per_side, size, size)
    x = line[None, :, None, :].expand(shape)
    y = line[:, None, :, None].expand(shape)
    return torch.stack([x, y]).reshape(1, 2, -1, size)


@dataclass(frozen=True)
class LinearMotion:
    """Matrix times point plus offset.

    Parameters
    ----------
    matrix
        (B, 2, 3), the last column being the offset.
    """

    matrix: Tensor

    def __call__(self, points: Tensor) -> Tensor:
        """Move the points of each image by its own matrix."""
        matrix = self.matrix.to(points.device)
        flat = points.flatten(2).expand(len(matrix), -1, -1)  # (B, 2, hw)
        moved = torch.baddbmm(matrix[:, :, 2:], matrix[:, :, :2], flat)
        return moved.view(len(matrix), 2, *points.shape[2:])


@dataclass(frozen=True)
class BendMotion:
    """Displacement by a smooth field, bicubic between the displacements at a grid of points.

    Parameters
    ----------
    field
        (B, 2, g, g), displacements along x and y at g x g points from edge to edge of the frame;
        beyond it, those at the edge are repeated.
    """

    field: Tensor

    def __call__(self, points: Tensor) -> Tensor:
        """Displace the points of each image by its own field."""
        field = self.field.to(points.device)
        if len(points) > 1:
            return points + _interpolate(field, points)
        # All images share the points, so the weights of the g x g displacements are the same for
        # all: the displaced points are one matrix product, x and y being two more weights.
        count, _, side, _ = field.shape
        own = torch.eye(2, device=field.device).expand(count, 2, 2)
        values = torch.cat([field.flatten(2), own], 2)  # (B, 2, gg + 2)
        corners = torch.eye(side * side, device=field.device).view(1, -1, side, side)
        weights = torch.cat([_interpolate(corners, points), points], 1)  # (1, gg + 2, h, w)
        moved = values.flatten(0, 1) @ weights.flatten(2)[0]  # (2B, hw)
        return moved.view(count, 2, *points.shape[2:])


def _interpolate(values: Tensor, points: Tensor) -> Tensor:
    """Interpolate values (B, n, g, g) that lie from edge to edge at points: (B, n, h, w)."""
    at = points.permute(0, 2, 3, 1)
    return F.grid_sample(values, at, mode="bicubic", padding_mode="border", align_corners=True)
