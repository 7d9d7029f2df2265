"""Consecutive movers as one part: their motions are composed, and the image is sampled once.

Interpolating twice would blur twice and cost twice. Against aliasing, images much larger than the
view are first shrunk, with antialiasing, to about twice its side; each pixel of the view is then
the mean of two by two samples.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor

from psco.errors import InputError
from psco.ops.resample import to_float
from psco.views.fill import Fill, fill_colour
from psco.views.motion import Mover, view_points
from psco.views.part import Part

OVERSAMPLING = 2  # samples per pixel along either axis, and ratio of source side to view side
NEAR = 1.5  # ratio of source side to view side up to which one sample per pixel is enough
SLACK = 1.25  # enlargement that needs no larger source
_CPU = torch.device("cpu")
PADDING = {"edge": "border", "reflect": "reflection"}  # names in PyTorch


def shrink(images: Tensor, side: int) -> Tensor:
    """Resize the short side of much larger images to ``side``, with antialiasing.

    Parameters
    ----------
    images
        (B, C, H, W), float32 or uint8.
    side
        In pixels. Images whose short side is less than 1.5 times as long are not changed.

    Returns
    -------
    Tensor
        (B, C, h, w) of the same type; uint8 is rounded, as in Pillow.
    """
    height, width = images.shape[2:]
    short = min(height, width)
    if short < NEAR * side or len(images) == 0:
        return images
    target = [round(height * side / short), round(width * side / short)]
    # Only the CPU supports antialiasing of integers.
    is_integer = images.dtype == torch.uint8
    pixels = images.float() if is_integer and images.device.type != "cpu" else images
    small = F.interpolate(pixels, target, mode="bilinear", antialias=True)
    return small.round().to(torch.uint8) if pixels.dtype != images.dtype else small


def sample(images: Tensor, points: Tensor, fill: Fill) -> Tensor:
    """Sample images at points, with bilinear interpolation.

    Parameters
    ----------
    images
        (B, C, H, W) float32 in [0, 1].
    points
        (B, 2, h, w), x and y; the central square of an image is from -1 to 1.
    fill
        Colour outside the images, see `fill_colour`; ``"edge"`` repeats their border pixels and
        ``"reflect"`` mirrors the images.

    Returns
    -------
    Tensor
        (B, C, h, w) float32 in [0, 1].
    """
    height, width = images.shape[2:]
    at = points.permute(0, 2, 3, 1)  # (B, h, w, 2)
    if height != width:
        short = min(height, width)
        at = at * torch.tensor([short / width, short / height], device=at.device)
    if fill == "edge" or fill == "reflect":
        return F.grid_sample(images, at, padding_mode=PADDING[fill], align_corners=False)
    # PyTorch pads with zeros, so the fill colour is subtracted first.
    colour = fill_colour(images, fill)
    sampled = F.grid_sample(images - colour, at, align_corners=False)
    return sampled.add_(colour).clamp_(0, 1)


@dataclass(frozen=True)
class Warp:
    """Several movers, applied in one step.

    Nothing is cut off between them: after a crop, a rotation shows what surrounds the crop.

    Parameters
    ----------
    movers
        The parts, in this order; at least one of them interpolates.

    Raises
    ------
    InputError
        If their options ``fill`` differ.
    """

    resizes: ClassVar[bool] = True

    movers: tuple[Mover, ...]

    def __post_init__(self) -> None:
        if len(set(self._fills)) > 1:
            listed = " and ".join(
                f"{type(mover).__name__.lower()} has fill={mover.fill!r}"
                for mover in self.movers
                if hasattr(mover, "fill")
            )
            raise InputError(
                f"{listed}: consecutive parts are applied together and need the same fill"
            )

    @property
    def fill(self) -> Fill:
        """Colour outside the image."""
        return self._fills[0]

    @property
    def _fills(self) -> list[Fill]:
        return [mover.fill for mover in self.movers if hasattr(mover, "fill")]

    def source_side(self, size: int) -> int:
        """Return the side to which images are shrunk for views of side ``size``."""
        enlargement = math.prod(mover.enlargement for mover in self.movers)
        # A source more than twice as large would be sampled with gaps where nothing is enlarged.
        return round(OVERSAMPLING * size * min(max(enlargement / SLACK, 1.0), 2.0))

    def __call__(self, images: Tensor, size: int, generator: torch.Generator) -> Tensor:
        """Warp (B, C, H, W) images, uint8 or float32, to (B, C, size, size) float32."""
        source = to_float(shrink(images, self.source_side(size)))
        count, channels, height, width = source.shape
        points, per_side = self.draw_points(count, height, width, size, generator, source.device)
        samples = sample(source, points, self.fill)  # (B, C, k * k * size, size)
        if per_side == 1:
            return samples
        return samples.view(count, channels, per_side**2, size, size).mean(2)

    def draw_points(
        self,
        count: int,
        height: int,
        width: int,
        size: int,
        generator: torch.Generator,
        device: torch.device = _CPU,
    ) -> tuple[Tensor, int]:
        """Draw where ``count`` images of ``height`` x ``width`` pixels are sampled.

        Returns
        -------
        Tensor, int
            Points (count, 2, k * k * size, size), as in `view_points`, and k.
        """
        motions = []
        for mover in self.movers:
            motions.append(mover.draw_motion(count, height, width, generator))
            height = width = min(height, width)  # the next part receives a square
        per_side = OVERSAMPLING if height > NEAR * size else 1
        points = view_points(size, per_side, device)
        for motion in reversed(motions):
            points = motion(points)
        return points, per_side


def fuse(parts: Sequence[Part]) -> list[Part]:
    """Replace consecutive movers by one warp if one of them interpolates."""
    fused: list[Part] = []
    for _, group in groupby(parts, lambda part: isinstance(part, Mover)):
        consecutive = list(group)
        movers = tuple(part for part in consecutive if isinstance(part, Mover))
        fused += [Warp(movers)] if any(mover.warps for mover in movers) else consecutive
    return fused
