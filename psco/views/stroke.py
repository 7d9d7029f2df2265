"""Lines of a drawing made thicker or thinner, by fractions of a pixel."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar, Literal, get_args

import torch
from torch import Tensor

from psco.errors import InputError
from psco.views.fill import border_colour
from psco.views.part import bernoulli, check_bounds, check_probability, per_image, uniform

Ink = Literal["auto", "dark", "light"]


def brightest_neighbour(images: Tensor) -> Tensor:
    """Return the maximum of each pixel and its eight neighbours: (B, C, h, w)."""
    for axis in (2, 3):
        steps = images.shape[axis] - 1
        before, after = images.narrow(axis, 0, steps), images.narrow(axis, 1, steps)
        grown = images.clone()
        grown.narrow(axis, 0, steps).copy_(torch.maximum(before, after))
        later = grown.narrow(axis, 1, steps)
        later.copy_(torch.maximum(later, before))
        images = grown
    return images


def grow_dark(images: Tensor, amount: Tensor) -> Tensor:
    """Grow dark or light regions (grey-scale erosion or dilation).

    For an amount of 1, every pixel becomes the darkest (or lightest) of itself and its eight
    neighbours; a fraction interpolates.

    Parameters
    ----------
    images
        (B, C, h, w) float32.
    amount
        (B,), in pixels: > 0 grows dark regions, < 0 light ones.

    Returns
    -------
    Tensor
        (B, C, h, w).
    """
    if len(images) == 0:
        return images
    sign = torch.where(per_image(amount, images) > 0, -1.0, 1.0)  # (B, 1, 1, 1)
    left = per_image(amount.abs(), images)
    grown = images * sign  # regions to grow are bright now
    for _ in range(math.ceil(float(amount.abs().max()))):
        grown = torch.lerp(grown, brightest_neighbour(grown), left.clamp(0, 1))
        left = left - 1
    return grown * sign


def has_dark_ink(images: Tensor) -> Tensor:
    """Whether drawings are darker than their paper, the colour of their border.

    Parameters
    ----------
    images
        (B, C, h, w).

    Returns
    -------
    Tensor
        (B,) bool; True for images of a single colour.
    """
    return images.mean((1, 2, 3)) <= border_colour(images).mean((1, 2, 3))


@dataclass(frozen=True)
class Stroke:
    """Make the lines of a drawing thicker or thinner.

    Parameters
    ----------
    amount
        Least and greatest growth of lines on either side, in pixels of the view, drawn uniformly.
        Negative amounts make lines thinner: -1 removes lines up to two pixels wide. In [-4, 4].
    ink
        ``"dark"`` on light paper, ``"light"`` on dark paper, or ``"auto"``: decided for each image
        by the colour of its border.
    probability
        Probability that an image is changed.
    """

    resizes: ClassVar[bool] = False

    amount: tuple[float, float] = (-0.3, 0.4)
    ink: Ink = "auto"
    probability: float = 1.0

    def __post_init__(self) -> None:
        check_bounds("stroke", "amount", self.amount, -4, 4)
        if self.ink not in get_args(Ink):
            raise InputError(f"stroke: ink must be {', '.join(get_args(Ink))}, not {self.ink!r}")
        check_probability("stroke", self.probability)

    def __call__(self, images: Tensor, _size: int, generator: torch.Generator) -> Tensor:
        """Change the lines of (B, C, H, W) float32 images."""
        amount = self.draw_amount(len(images), generator).to(images.device)
        if self.ink == "light":
            amount = -amount
        elif self.ink == "auto":
            amount = torch.where(has_dark_ink(images), amount, -amount)
        return grow_dark(images, amount)

    def draw_amount(self, count: int, generator: torch.Generator) -> Tensor:
        """Draw by how many pixels the lines of each image grow: (count,), on the CPU."""
        low, high = self.amount
        amount = low + (high - low) * uniform(count, generator=generator)
        return amount * bernoulli(count, self.probability, generator)
