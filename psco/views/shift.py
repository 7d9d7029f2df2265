"""Shifts by a few whole pixels, with what leaves the frame mirrored back at the other side."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from psco.views.part import bernoulli, check_probability, check_range, uniform


@dataclass(frozen=True)
class Shift:
    """Shift by whole pixels along both axes; the image is mirrored at its border.

    Unlike ``affine`` with a shift it does not interpolate, and a crop before it keeps its filter.

    Parameters
    ----------
    most
        Greatest shift along either axis, as a fraction of the image's side.
    probability
        Probability that an image takes part.
    """

    resizes: ClassVar[bool] = False

    most: float = 0.05
    probability: float = 0.8

    def __post_init__(self) -> None:
        check_range("shift", "most", self.most, 0, 0.25)
        check_probability("shift", self.probability)

    def __call__(self, images: Tensor, _size: int, generator: torch.Generator) -> Tensor:
        """Shift (B, C, H, W) float32 images."""
        count, sides = len(images), torch.tensor(images.shape[2:])
        drawn = uniform(count, 2, generator=generator, dtype=torch.float64)  # (B, 2)
        moved = bernoulli(count, self.probability, generator)  # (B,)
        reach = (self.most * sides).round()  # (2,)
        offsets = (drawn * (2 * reach + 1)).floor() - reach  # (B, 2)
        offsets = torch.where(moved[:, None], offsets, 0).long()
        return shift_mirrored(images, offsets)


def shift_mirrored(images: Tensor, offsets: Tensor) -> Tensor:
    """Return images whose pixel (y, x) shows pixel (y + dy, x + dx), mirrored at the border.

    Parameters
    ----------
    images
        (B, C, H, W).
    offsets
        (B, 2) int64 on the CPU: dy and dx, less than H and W in magnitude.
    """
    if images.device.type != "cpu":
        rows, columns = (
            _mirrored(offsets[:, axis].to(images.device), side)
            for axis, side in enumerate(images.shape[2:])
        )  # (B, H), (B, W)
        along = images.gather(2, rows[:, None, :, None].expand_as(images))
        return along.gather(3, columns[:, None, None, :].expand_as(images))
    # On the CPU, copying what stays inside and mirroring the strips is several times faster.
    shifted = torch.empty_like(images)
    for image, source, (dy, dx) in zip(shifted, images, offsets.tolist(), strict=True):
        height, width = source.shape[1:]
        top, bottom = max(0, -dy), height - max(0, dy)
        left, right = max(0, -dx), width - max(0, dx)
        inside = source[:, top + dy : bottom + dy, left + dx : right + dx]
        image[:, top:bottom, left:right] = inside
        if dx < 0:
            image[:, :, :left] = image[:, :, left + 1 : 2 * left + 1].flip(2)
        elif dx > 0:
            image[:, :, right:] = image[:, :, right - dx - 1 : right - 1].flip(2)
        if dy < 0:
            image[:, :top] = image[:, top + 1 : 2 * top + 1].flip(1)
        elif dy > 0:
            image[:, bottom:] = image[:, bottom - dy - 1 : bottom - 1].flip(1)
    return shifted


def _mirrored(offset: Tensor, side: int) -> Tensor:
    """Return which pixel (B, side) of an axis each pixel shows after a shift by offsets (B,)."""
    place = (torch.arange(side, device=offset.device) + offset[:, None]).abs()
    last = side - 1
    return last - (last - place).abs()
