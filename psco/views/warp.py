"""Movers in a row as one part: their motions are joined, and the image is sampled once.

To interpolate twice would blur twice and cost twice. Against aliasing, sources that are much larger
than the view are shrunk first, with antialiasing, to about twice its side; each pixel of the view
is then the mean of two by two samples.
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

OVERSAMPLING = 2  # samples along the side of a pixel, and pixels of the source for one of the view
NEAR = 1.5  # so many pixels of the source for one of the view are sampled well by a single sample
SLACK = 1.25  # content enlarged so far is still as sharp as the view can show
PADDING = {"edge": "border", "reflect": "reflection"}  # what PyTorch calls them


def shrink(images: Tensor, side: int) -> Tensor:
    """Bring the short side of images that are much larger to ``side``, with antialiasing.

    Parameters
    ----------
    images
        (B, C, H, W), float32 or uint8.
    side
        In pixels. Images whose short side is less than 1.5 times as long stay as they are.

    Returns
    -------
    Tensor
        (B, C, h, w) of the same type; uint8 is rounded to whole levels, as by Pillow.
    """
    height, width = images.shape[2:]
    short = min(height, width)
    if short < NEAR * side or len(images) == 0:
        return images
    target = [round(height * side / short), round(width * side / short)]
    # Other devices than the CPU have no antialiasing for whole numbers.
    whole = images.dtype == torch.uint8
    pixels = images.float() if whole and images.device.type != "cpu" else images
    small = F.interpolate(pixels, target, mode="bilinear", antialias=True)
    return small.round().to(torch.uint8) if pixels.dtype != images.dtype else small


def sample(images: Tensor, points: Tensor, fill: Fill) -> Tensor:
    """Look points up in images, bilinearly between pixels.

    Parameters
    ----------
    images
        (B, C, H, W) float32 in [0, 1].
    points
        (B, 2, h, w), x and y; the central square of an image lies from -1 to 1.
    fill
        What lies outside the images, see `fill_colour`; ``"edge"`` repeats their outermost
        pixels and ``"reflect"`` mirrors them.

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
    # Outside, PyTorch knows zeros only, so that colour has to be the zero.
    colour = fill_colour(images, fill)
    looked_up = F.grid_sample(images - colour, at, align_corners=False)
    return looked_up.add_(colour).clamp_(0, 1)


@dataclass(frozen=True)
class Warp:
    """Some movers, applied together.

    Nothing is cut off between them: after a crop, a rotation brings in what lay around the crop.

    Parameters
    ----------
    movers
        The parts, in this order; at least one of them warps.

    Raises
    ------
    InputError
        If they do not agree on what lies outside the image.
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
                f"{listed}: parts next to one another are applied together and need the same fill"
            )

    @property
    def fill(self) -> Fill:
        """What lies outside the image."""
        return self._fills[0]

    @property
    def _fills(self) -> list[Fill]:
        return [mover.fill for mover in self.movers if hasattr(mover, "fill")]

    def source_side(self, size: int) -> int:
        """Give the side of sources that are large enough for views of side ``size``."""
        enlargement = math.prod(mover.enlargement for mover in self.movers)
        # More than twice as large a source would be sampled with gaps where nothing is enlarged.
        return round(OVERSAMPLING * size * min(max(enlargement / SLACK, 1.0), 2.0))

    def __call__(self, images: Tensor, size: int, generator: torch.Generator) -> Tensor:
        """Warp (B, C, H, W) images, uint8 or float32, to (B, C, size, size) float32."""
        source = to_float(shrink(images, self.source_side(size)))
        count, channels, height, width = source.shape
        motions = []
        for mover in self.movers:
            motions.append(mover.draw_motion(count, height, width, generator))
            height = width = min(height, width)  # whatever comes next sees a square
        per_side = OVERSAMPLING if height > NEAR * size else 1
        points = view_points(size, per_side, source.device)
        for motion in reversed(motions):
            points = motion(points)
        samples = sample(source, points, self.fill)  # (B, C, k * k * size, size)
        if per_side == 1:
            return samples
        return samples.view(count, channels, per_side**2, size, size).mean(2)


def fuse(parts: Sequence[Part]) -> list[Part]:
    """Join movers in a row into a warp wherever one of them warps; other parts stay themselves."""
    fused: list[Part] = []
    for _, group in groupby(parts, lambda part: isinstance(part, Mover)):
        row = list(group)
        movers = tuple(part for part in row if isinstance(part, Mover))
        fused += [Warp(movers)] if any(mover.warps for mover in movers) else row
    return fused
