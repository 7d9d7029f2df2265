"""Which part of an image a view shows: the random resized crop."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from psco.errors import InputError
from psco.ops.crop import crop_resize
from psco.ops.resample import RADIUS, Filter
from psco.views.motion import LinearMotion, Motion, Mover
from psco.views.part import check_span, uniform

ATTEMPTS = 10
LEAST_SIDE = 2  # pixels of a box; a single one has no content


def sample_boxes(
    count: int,
    height: int,
    width: int,
    scale: tuple[float, float],
    ratio: tuple[float, float],
    generator: torch.Generator,
) -> Tensor:
    """Draw random boxes inside an image.

    The area is uniform in ``scale`` times that of the image and the ratio of width to height is
    log-uniform in ``ratio``, both up to rounding to whole pixels. The first of ten attempts
    that fits is used, at a uniform place; if none fits, the box is the largest central one whose
    ratio is in range.

    Parameters
    ----------
    count
        Number of boxes, B. Always uses 22 B numbers of the generator.
    height, width
        The image's sides in pixels.
    scale
        Least and greatest area, as fractions of the image's.
    ratio
        Least and greatest ratio of width to height.

    Returns
    -------
    Tensor
        (B, 4) int64: top, left, height, width.
    """
    # In float64 a uniform number times n, rounded down, is never n itself.
    draws = uniform(count, 2 * ATTEMPTS + 2, generator=generator, dtype=torch.float64)
    where, draws = draws[:, :2], draws[:, 2:].view(count, 2, ATTEMPTS)
    area = height * width * (scale[0] + draws[:, 0] * (scale[1] - scale[0]))  # (B, 10)
    log_low, log_high = math.log(ratio[0]), math.log(ratio[1])
    aspect = torch.exp(log_low + draws[:, 1] * (log_high - log_low))  # (B, 10)
    sides = torch.stack([(area / aspect).sqrt(), (area * aspect).sqrt()], 2).round()  # (B, 10, 2)

    limit = torch.tensor([height, width], dtype=torch.float64)
    fits = ((sides > 0) & (sides <= limit)).all(2)  # (B, 10)
    first = fits.byte().argmax(1)  # (B,), the first of equal maxima
    chosen = sides[torch.arange(count), first]  # (B, 2)
    corner = (where * (limit - chosen + 1)).floor()  # (B, 2)
    boxes = torch.cat([corner, chosen], 1).long()  # (B, 4)
    fallback = torch.tensor(central_box(height, width, ratio))
    return torch.where(fits.any(1, keepdim=True), boxes, fallback)


def central_box(height: int, width: int, ratio: tuple[float, float]) -> tuple[int, int, int, int]:
    """Return the largest central box (top, left, height, width) whose ratio is in range."""
    h, w = height, width
    if width / height < ratio[0]:
        h = max(round(width / ratio[0]), 1)
    elif width / height > ratio[1]:
        w = max(round(height * ratio[1]), 1)
    return (height - h) // 2, (width - w) // 2, h, w


@dataclass(frozen=True)
class Crop(Mover):
    """Cut out a random box and resize it to the view's side.

    Parameters
    ----------
    scale
        Least and greatest area of the box, as fractions of the image's.
    ratio
        Least and greatest ratio of the box's width to its height, before it becomes a square.
    filter
        ``"bilinear"`` or ``"bicubic"``, both antialiased.
    """

    resizes: ClassVar[bool] = True

    scale: tuple[float, float] = (0.2, 1.0)
    ratio: tuple[float, float] = (3 / 4, 4 / 3)
    filter: Filter = "bicubic"

    def __post_init__(self) -> None:
        check_span("crop", "scale", self.scale, most=1)
        check_span("crop", "ratio", self.ratio)
        if self.filter not in RADIUS:
            raise InputError(f"crop: filter must be {' or '.join(RADIUS)}, not {self.filter!r}")

    def __call__(self, images: Tensor, size: int, generator: torch.Generator) -> Tensor:
        """Crop (B, C, H, W) images, uint8 or float32, to (B, C, size, size) float32."""
        height, width = images.shape[2:]
        boxes = self.draw_boxes(len(images), height, width, generator)
        return crop_resize(images, boxes, size, self.filter)

    @property
    def enlargement(self) -> float:
        """How many times larger than in the whole image the content of the least box is shown."""
        return 1 / math.sqrt(self.scale[0])

    def draw_motion(
        self, count: int, height: int, width: int, generator: torch.Generator
    ) -> Motion:
        """Draw boxes and return the motions of the frame into them."""
        boxes = self.draw_boxes(count, height, width, generator)
        top, left, h, w = boxes.float().unbind(1)
        x, y = left + (w - width) / 2, top + (h - height) / 2  # of the centres, from the middle
        zero = torch.zeros(count)
        rows = [torch.stack([w, zero, 2 * x], 1), torch.stack([zero, h, 2 * y], 1)]
        return LinearMotion(torch.stack(rows, 1) / min(height, width))

    def draw_boxes(self, count: int, height: int, width: int, generator: torch.Generator) -> Tensor:
        """Draw the boxes of ``count`` images: (count, 4) int64, see `sample_boxes`."""
        if self.scale[1] * height * width < LEAST_SIDE**2:
            raise InputError(
                f"crop: with scale={self.scale!r} every view of {height} x {width} px images "
                f"would be of one colour, cut from less than {LEAST_SIDE} x {LEAST_SIDE} px; "
                f"raise scale"
            )
        return sample_boxes(count, height, width, self.scale, self.ratio, generator)
