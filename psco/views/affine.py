"""Affine and elastic deformations."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from psco.errors import InputError
from psco.views.fill import COLOURS, CONTINUATIONS, Fill, check_fill
from psco.views.motion import BendMotion, LinearMotion, Motion, Mover
from psco.views.part import check_bounds, check_range, normal, uniform
from psco.views.warp import Warp


def affine_matrices(rotation: Tensor, shear: Tensor, scale: Tensor, shift: Tensor) -> Tensor:
    """Return the matrices that show content scaled, then sheared, then rotated, then shifted.

    They map points of the view to points of the image, so they invert the four steps in reverse
    order.

    Parameters
    ----------
    rotation
        (B,), in radians, clockwise.
    shear
        (B,), change of x per unit of y.
    scale
        (B, 2), factors of width and height, > 0.
    shift
        (B, 2), along x and y.

    Returns
    -------
    Tensor
        (B, 2, 3).
    """
    cos, sin = rotation.cos(), rotation.sin()
    unrotate = torch.stack([cos, sin, -sin, cos], 1).view(-1, 2, 2)
    unshear = torch.eye(2).repeat(len(shear), 1, 1)
    unshear[:, 0, 1] = -shear
    matrix = (1 / scale)[:, :, None] * (unshear @ unrotate)  # (B, 2, 2)
    return torch.cat([matrix, -matrix @ shift[:, :, None]], 2)


@dataclass(frozen=True)
class Affine(Mover):
    """Rotate, shear, scale and shift by uniformly drawn amounts.

    Parameters
    ----------
    rotation
        Greatest angle in degrees, to either side, in [0, 180].
    shear
        Greatest horizontal shift per unit of height, to either side, in [0, 1].
    log_scale
        Least and greatest logarithm of the factor, drawn separately for width and height; -0.25
        shows the content at 78 % of its size, 0.2 at 122 %. In [-1.5, 1.5].
    shift
        Greatest shift along either axis, in units of half the side of the image, in [0, 1].
    fill
        Colour outside the image, see `fill_colour`; ``"edge"`` repeats its border pixels and
        ``"reflect"`` mirrors the image.
    """

    resizes: ClassVar[bool] = True
    warps: ClassVar[bool] = True

    rotation: float = 15.0
    shear: float = 0.25
    log_scale: tuple[float, float] = (-0.25, 0.2)
    shift: float = 0.2
    fill: Fill = "white"

    def __post_init__(self) -> None:
        check_range("affine", "rotation", self.rotation, 0, 180)
        check_range("affine", "shear", self.shear, 0, 1)
        check_bounds("affine", "log_scale", self.log_scale, -1.5, 1.5)
        if self.shift >= 2:
            raise InputError(
                f"affine: shift must be in [0, 1], not {self.shift!r}; from 2 on the views "
                f"show nothing of the image"
            )
        check_range("affine", "shift", self.shift, 0, 1)
        check_fill("affine", self.fill, COLOURS + CONTINUATIONS)

    def __call__(self, images: Tensor, size: int, generator: torch.Generator) -> Tensor:
        """Transform (B, C, H, W) images, uint8 or float32, to (B, C, size, size) float32."""
        return Warp((self,))(images, size, generator)

    @property
    def enlargement(self) -> float:
        """Greatest factor by which content is enlarged."""
        return max(1.0, math.exp(self.log_scale[1]))

    def draw_motion(
        self, count: int, _height: int, _width: int, generator: torch.Generator
    ) -> Motion:
        """Draw the six parameters of each image."""
        draws = uniform(count, 6, generator=generator)  # (B, 6)
        signed = 2 * draws - 1
        low, high = self.log_scale
        return LinearMotion(
            affine_matrices(
                math.radians(self.rotation) * signed[:, 0],
                self.shear * signed[:, 1],
                torch.exp(low + (high - low) * draws[:, 2:4]),
                self.shift * signed[:, 4:],
            )
        )


@dataclass(frozen=True)
class Elastic(Mover):
    """Deform elastically, by a smooth field of random displacements.

    Parameters
    ----------
    grid
        The displacements are drawn at grid x grid points, from edge to edge of the image, and
        interpolated bicubically; in [2, 16]. Fewer points deform on a larger scale.
    sigma
        Their standard deviation along either axis, in units of half the side of the image, in
        [0, 0.3]. Above about 0.7 / (grid - 1), parts of the image overlap.
    fill
        As in `Affine`.
    """

    resizes: ClassVar[bool] = True
    warps: ClassVar[bool] = True

    grid: int = 6
    sigma: float = 0.03
    fill: Fill = "white"

    def __post_init__(self) -> None:
        check_range("elastic", "grid", self.grid, 2, 16)
        check_range("elastic", "sigma", self.sigma, 0, 0.3)
        check_fill("elastic", self.fill, COLOURS + CONTINUATIONS)

    def __call__(self, images: Tensor, size: int, generator: torch.Generator) -> Tensor:
        """Deform (B, C, H, W) images, uint8 or float32, to (B, C, size, size) float32."""
        return Warp((self,))(images, size, generator)

    def draw_motion(
        self, count: int, _height: int, _width: int, generator: torch.Generator
    ) -> Motion:
        """Draw the displacements of each image."""
        field = normal(count, 2, self.grid, self.grid, generator=generator)
        return BendMotion(self.sigma * field)
