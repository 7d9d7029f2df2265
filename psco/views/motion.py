"""Geometric parts as maps of coordinates, which can be composed before the image is sampled.

Coordinates are x to the right and y down, with the central square of an image from -1 to 1 along
both axes. A motion maps each point of the output of a part to the point of its input whose content
appears there. A sequence of parts is composed from the last to the first, and the image is sampled
once at the resulting points.
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
"""Maps points (B, 2, h, w), or (1, 2, h, w) shared by all images, to points (B, 2, h, w)."""


class Mover(ABC):
    """A part that only moves pixels; consecutive movers can be applied in one step.

    ``warps`` tells whether it needs interpolation, as a rotation does. Such parts resize images to
    the side of the view, and have an option ``fill`` for the colour outside the image. The other
    movers do not interpolate unless a warping part is next to them.
    """

    warps: ClassVar[bool] = False

    @property
    def enlargement(self) -> float:
        """Greatest factor by which the part enlarges content, at least 1."""
        return 1.0

    @abstractmethod
    def draw_motion(
        self, count: int, height: int, width: int, generator: torch.Generator, /
    ) -> Motion:
        """Draw the motions of ``count`` images of ``height`` x ``width`` pixels."""


def view_points(size: int, per_side: int, device: torch.device) -> Tensor:
    """Return the points at which a view is sampled, ``per_side ** 2`` in each pixel.

    Returns
    -------
    Tensor
        (1, 2, per_side ** 2 * size, size), x and y: the first point of every pixel, then the second
        of every pixel and so on, so that their average is a mean over blocks of rows.
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
    """An affine map of points.

    Parameters
    ----------
    matrix
        (B, 2, 3), the last column being the offset.
    """

    matrix: Tensor

    def __call__(self, points: Tensor) -> Tensor:
        """Map the points of each image by its matrix."""
        matrix = self.matrix.to(points.device)
        flat = points.flatten(2).expand(len(matrix), -1, -1)  # (B, 2, hw)
        moved = torch.baddbmm(matrix[:, :, 2:], matrix[:, :, :2], flat)
        return moved.view(len(matrix), 2, *points.shape[2:])


@dataclass(frozen=True)
class BendMotion:
    """Displacement by a smooth field, interpolated bicubically from a grid.

    Parameters
    ----------
    field
        (B, 2, g, g), displacements along x and y at g x g points from -1 to 1; beyond, those at
        the edge are repeated.
    """

    field: Tensor

    def __call__(self, points: Tensor) -> Tensor:
        """Displace the points of each image by its field."""
        field = self.field.to(points.device)
        if len(points) > 1:
            return points + _interpolate(field, points)
        # All images share the points, hence also the interpolation weights: the displaced points
        # are one matrix product, with x and y as two more weights.
        count, _, side, _ = field.shape
        identity = torch.eye(2, device=field.device).expand(count, 2, 2)
        values = torch.cat([field.flatten(2), identity], 2)  # (B, 2, gg + 2)
        corners = torch.eye(side * side, device=field.device).view(1, -1, side, side)
        weights = torch.cat([_interpolate(corners, points), points], 1)  # (1, gg + 2, h, w)
        moved = values.flatten(0, 1) @ weights.flatten(2)[0]  # (2B, hw)
        return moved.view(count, 2, *points.shape[2:])


def _interpolate(values: Tensor, points: Tensor) -> Tensor:
    """Interpolate values (B, n, g, g) on a grid from -1 to 1 at points: (B, n, h, w)."""
    at = points.permute(0, 2, 3, 1)
    return F.grid_sample(values, at, mode="bicubic", padding_mode="border", align_corners=True)
