"""Random erasing: a rectangle of the image is painted over."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

import torch
from torch import Tensor

from psco.errors import InputError
from psco.views.crop import sample_boxes
from psco.views.fill import COLOURS, Colour, check_fill, fill_colour
from psco.views.part import (
    bernoulli,
    check_probability,
    check_span,
    fresh_generator,
    per_image,
    uniform,
)

Paint = Colour | Literal["noise"]


def box_masks(boxes: Tensor, height: int, width: int) -> Tensor:
    """Return masks of the pixels inside boxes.

    Parameters
    ----------
    boxes
        (B, 4) int64: top, left, height, width.
    height, width
        Size of the images in pixels.

    Returns
    -------
    Tensor
        (B, 1, height, width) bool.
    """
    top, left, box_height, box_width = boxes[:, :, None].unbind(1)  # (B, 1) each
    y, x = (torch.arange(side, device=boxes.device) for side in (height, width))
    rows = (y >= top) & (y < top + box_height)  # (B, H)
    columns = (x >= left) & (x < left + box_width)  # (B, W)
    return (rows[:, :, None] & columns[:, None, :])[:, None]


@dataclass(frozen=True)
class Erase:
    """Paint over a random rectangle.

    Parameters
    ----------
    area
        Least and greatest area of the rectangle, as fractions of the view, below 1.
    ratio
        Least and greatest ratio of its width to its height.
    fill
        Colour of the rectangle, see `fill_colour`; ``"noise"`` draws a random value per pixel.
    probability
        Probability that a rectangle is erased.
    """

    resizes: ClassVar[bool] = False

    area: tuple[float, float] = (0.02, 0.2)
    ratio: tuple[float, float] = (0.3, 3.3)
    fill: Paint = "mean"
    probability: float = 0.5

    def __post_init__(self) -> None:
        check_span("erase", "area", self.area, most=1)
        if self.area[1] == 1:
            raise InputError(
                f"erase: area must be less than 1, not {self.area!r}; 1 erases the whole image"
            )
        check_span("erase", "ratio", self.ratio)
        check_fill("erase", self.fill, (*COLOURS, "noise"))
        check_probability("erase", self.probability)

    def __call__(self, images: Tensor, _size: int, generator: torch.Generator) -> Tensor:
        """Paint over rectangles of (B, C, H, W) float32 images."""
        height, width = images.shape[2:]
        chosen = bernoulli(len(images), self.probability, generator)
        boxes = sample_boxes(len(images), height, width, self.area, self.ratio, generator)
        # Noise has its own generator, since the number of values depends on the size of the images.
        seed = int(torch.randint(2**32, (), generator=generator))
        hidden = box_masks(boxes.to(images.device), height, width) & per_image(chosen, images)
        if self.fill == "noise":
            noise = uniform(*images.shape, generator=fresh_generator(seed, generator))
            return torch.where(hidden, noise.to(images.device), images)
        return torch.where(hidden, fill_colour(images, self.fill), images)
