"""Colour jitter, and random conversion to grey."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from psco.errors import InputError
from psco.views.part import bernoulli, check_probability, per_image, uniform

LUMA = (0.299, 0.587, 0.114)


def luma(images: Tensor) -> Tensor:
    """Return the luma of each pixel: (B, C, H, W) to (B, 1, H, W), C being 1 or 3."""
    if images.shape[1] == 1:
        return images
    if images.shape[1] != 3:
        raise InputError(f"jitter and grey need images with 1 or 3 channels, not {images.shape[1]}")
    red, green, blue = images.chunk(3, 1)
    return LUMA[0] * red + LUMA[1] * green + LUMA[2] * blue


def change_brightness(images: Tensor, factor: Tensor) -> Tensor:
    """Multiply images (B, C, H, W) by a factor (B, 1, 1, 1) >= 0; 0 gives black."""
    return (images * factor).clamp_(0, 1)


def change_contrast(images: Tensor, factor: Tensor) -> Tensor:
    """Scale the distance from the mean luma of each image by a factor >= 0."""
    mean = luma(images).mean((1, 2, 3), keepdim=True)  # (B, 1, 1, 1)
    return torch.lerp(mean, images, factor).clamp_(0, 1)


def change_saturation(images: Tensor, factor: Tensor) -> Tensor:
    """Scale the distance from the luma of each pixel by a factor >= 0; RGB only."""
    return torch.lerp(luma(images), images, factor).clamp_(0, 1)


def change_hue(images: Tensor, shift: Tensor) -> Tensor:
    """Rotate the hue, keeping HSV saturation and value; RGB only.

    Parameters
    ----------
    images
        (B, 3, H, W) float32 in [0, 1].
    shift
        (B, 1, 1, 1), in turns: 0 and 1 leave the images unchanged.
    """
    red, green, blue = images.chunk(3, 1)
    value, least = images.amax(1, keepdim=True), images.amin(1, keepdim=True)
    chroma = value - least  # (B, 1, H, W)
    # Hue in sixths of a turn. Where chroma is zero the hue is undefined and has no effect below.
    from_green = (blue - red).add_(chroma, alpha=2)
    from_blue = (red - green).add_(chroma, alpha=4)
    hue = torch.where(value == green, from_green, from_blue)
    hue = torch.where(value == red, green - blue, hue)
    hue = hue.div_(chroma.clamp(min=1e-12)).add_(6 * shift)
    hue = hue.sub_((hue / 6).floor_(), alpha=6)  # (B, 1, H, W) in [0, 6)
    # A channel has the full value within one sixth of its hue, and the least beyond two sixths.
    own_hue = torch.tensor([0.0, 2.0, 4.0], device=images.device)[:, None, None]  # (3, 1, 1)
    opposite = (hue - own_hue).abs_().sub_(3).abs_()  # (B, 3, H, W), 3 - distance around the circle
    return opposite.sub_(1).clamp_(0, 1).sub_(1).mul_(chroma).add_(value)


CHANGES: tuple[Callable[[Tensor, Tensor], Tensor], ...] = (
    change_brightness,
    change_contrast,
    change_saturation,
    change_hue,
)


@dataclass(frozen=True)
class Jitter:
    """Change brightness, contrast, saturation and hue, in a random order for each image.

    Grey images have neither saturation nor hue, so only the first two apply to them.

    Parameters
    ----------
    brightness, contrast, saturation
        The factor is uniform in [max(0, 1 - strength), 1 + strength].
    hue
        The shift is uniform in [-strength, strength], in turns; at most 0.5.
    probability
        Probability that an image is changed.
    """

    resizes: ClassVar[bool] = False

    brightness: float = 0.4
    contrast: float = 0.4
    saturation: float = 0.4
    hue: float = 0.1
    probability: float = 0.8

    def __post_init__(self) -> None:
        for name in ("brightness", "contrast", "saturation"):
            strength = getattr(self, name)
            if not 0 <= strength < float("inf"):
                raise InputError(f"jitter: {name} must be at least 0, not {strength!r}")
        if not 0 <= self.hue <= 0.5:
            raise InputError(f"jitter: hue must be in [0, 0.5], not {self.hue!r}")
        check_probability("jitter", self.probability)

    def __call__(self, images: Tensor, _size: int, generator: torch.Generator) -> Tensor:
        """Change the colours of (B, C, H, W) float32 images, C being 1 or 3."""
        applied = bernoulli(len(images), self.probability, generator)
        factors = self.draw_factors(len(images), generator)  # (B, 4)
        order = uniform(len(images), len(CHANGES), generator=generator).argsort(1)  # (B, 4)

        strengths = (self.brightness, self.contrast, self.saturation, self.hue)
        usable = 2 if images.shape[1] == 1 else len(CHANGES)
        images = images.clone()
        for place in range(len(CHANGES)):
            for index in range(usable):
                if strengths[index] == 0:
                    continue
                chosen = (applied & (order[:, place] == index)).nonzero().squeeze(1)
                factor = per_image(factors[chosen, index], images)
                chosen = chosen.to(images.device)
                images[chosen] = CHANGES[index](images[chosen], factor)
        return images

    def draw_factors(self, count: int, generator: torch.Generator) -> Tensor:
        """Draw the arguments of the four changes: (count, 4), in the order of ``CHANGES``."""
        strengths = (self.brightness, self.contrast, self.saturation)
        low = torch.tensor([max(0.0, 1 - s) for s in strengths] + [-self.hue])
        high = torch.tensor([1 + s for s in strengths] + [self.hue])
        return low + (high - low) * uniform(count, len(CHANGES), generator=generator)


@dataclass(frozen=True)
class Grey:
    """Convert to grey, keeping three channels; grey images are not changed.

    Parameters
    ----------
    probability
        Probability that an image is converted.
    """

    resizes: ClassVar[bool] = False

    probability: float = 0.2

    def __post_init__(self) -> None:
        check_probability("grey", self.probability)

    def __call__(self, images: Tensor, _size: int, generator: torch.Generator) -> Tensor:
        """Convert (B, C, H, W) float32 images to grey, C being 1 or 3."""
        grey = per_image(bernoulli(len(images), self.probability, generator), images)
        return torch.where(grey, luma(images), images)
