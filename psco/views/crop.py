"""Where the content of a view lies: the random resized crop and the horizontal flip."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from psco.errors import InputError
from psco.views.part import check_probability, check_span, per_image, toss
from psco.views.resample import RADIUS, Filter, resize_weights, separable

ATTEMPTS = 10


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
    log-uniform in ``ratio``, both up to rounding to whole pixels. Of ten attempts the first that
    fits counts, at a uniform place; if none fits, the box is the largest central one whose ratio
    is in range.

    Parameters
    ----------
    count
        Number of boxes, B. The generator gives 22 B numbers, whatever the other parameters.
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
    draws = torch.rand(count, 2 * ATTEMPTS + 2, generator=generator, dtype=torch.float64)
    where, draws = draws[:, :2], draws[:, 2:].view(count, 2, ATTEMPTS)
    area = height * width * (scale[0] + draws[:, 0] * (scale[1] - scale[0]))  # (B, 10)
    log_low, log_high = math.log(ratio[0]), math.log(ratio[1])
    aspect = torch.exp(log_low + draws[:, 1] * (log_high - log_low))  # (B, 10)
    sides = torch.stack([(area / aspect).sqrt(), (area * aspect).sqrt()], 2).round()  # (B, 10, 2)

    limit = torch.tensor([height, width], dtype=torch.float64)
    fits = ((sides > 0) & (sides <= limit)).all(2)  # (B, 10)
    first = fits.to(torch.uint8).argmax(1)  # (B,), the first of equal maxima
    chosen = sides[torch.arange(count), first]  # (B, 2)
    corner = (where * (limit - chosen + 1)).floor()  # (B, 2)
    boxes = torch.cat([corner, chosen], 1).long()  # (B, 4)
    fallback = torch.tensor(central_box(height, width, ratio))
    return torch.where(fits.any(1, keepdim=True), boxes, fallback)


def central_box(height: int, width: int, ratio: tuple[float, float]) -> tuple[int, int, int, int]:
    """Give the largest central box (top, left, height, width) whose ratio is in range."""
    h, w = height, width
    if width / height < ratio[0]:
        h = max(round(width / ratio[0]), 1)
    elif width / height > ratio[1]:
        w = max(round(height * ratio[1]), 1)
    return (height - h) // 2, (width - w) // 2, h, w


def crop_resize(images: Tensor, boxes: Tensor, size: int, filter: Filter) -> Tensor:
    """Cut one box out of every image and resize it to a square.

    Parameters
    ----------
    images
        (B, C, H, W), float32 in [0, 1] or uint8.
    boxes
        (B, 4) int64: top, left, height, width, inside the image.
    size
        Side of the result in pixels.
    filter
        ``"bilinear"`` or ``"bicubic"``.

    Returns
    -------
    Tensor
        (B, C, size, size) float32 in [0, 1]; Pillow's ``image.crop(box).resize(...)`` up to its
        rounding to 8 bits.
    """
    top, left, height, width = boxes.to(images.device).unbind(1)
    rows = resize_weights(top, height, images.shape[2], size, filter)
    columns = resize_weights(left, width, images.shape[3], size, filter)
    return separable(images, rows, columns)


@dataclass(frozen=True)
class Crop:
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
        boxes = sample_boxes(len(images), height, width, self.scale, self.ratio, generator)
        return crop_resize(images, boxes, size, self.filter)


@dataclass(frozen=True)
class Flip:
    """Mirror left and right.

    Parameters
    ----------
    probability
        How likely an image is mirrored.
    """

    resizes: ClassVar[bool] = False

    probability: float = 0.5

    def __post_init__(self) -> None:
        check_probability("flip", self.probability)

    def __call__(self, images: Tensor, size: int, generator: torch.Generator) -> Tensor:  # noqa: ARG002
        """Mirror (B, C, H, W) float32 images."""
        flipped = per_image(toss(len(images), self.probability, generator), images)
        return torch.where(flipped, images.flip(3), images)
