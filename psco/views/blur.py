"""Gaussian blur with a random width for each image."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from psco.ops.resample import separable
from psco.views.part import bernoulli, check_probability, check_span, uniform

TRUNCATE = 3  # standard deviations of the widest Gaussian beyond which it is cut off


def blur_weights(sigma: Tensor, side: int, radius: int) -> Tensor:
    """Return the matrices that blur along one axis; border pixels are repeated.

    Parameters
    ----------
    sigma
        (B,), the standard deviation of each Gaussian in pixels, > 0.
    side
        Number of pixels along the axis.
    radius
        Number of pixels on either side that a Gaussian covers.

    Returns
    -------
    Tensor
        (B, side, side) float32; each row sums to one.
    """
    taps = torch.arange(-radius, radius + 1, device=sigma.device)  # (k,)
    gauss = torch.exp(-0.5 * (taps / sigma[:, None]) ** 2)  # (B, k)
    gauss /= gauss.sum(1, keepdim=True)
    pixels = torch.arange(side, device=sigma.device)
    # The mapping from taps and output pixels to input pixels is the same for all images.
    under = (pixels[:, None] + taps[:, None, None]).clamp_(0, side - 1) == pixels  # (k, s, s)
    return (gauss @ under.float().view(len(taps), -1)).view(len(sigma), side, side)


@dataclass(frozen=True)
class Blur:
    """Blur with a Gaussian.

    Parameters
    ----------
    sigma
        Least and greatest standard deviation in pixels of the view, drawn uniformly.
    probability
        Probability that an image is blurred.
    """

    resizes: ClassVar[bool] = False

    sigma: tuple[float, float] = (0.1, 2.0)
    probability: float = 0.5

    def __post_init__(self) -> None:
        check_span("blur", "sigma", self.sigma)
        check_probability("blur", self.probability)

    def __call__(self, images: Tensor, _size: int, generator: torch.Generator) -> Tensor:
        """Blur (B, C, H, W) float32 images."""
        low, high = self.sigma
        # They are selected on the host, which avoids a synchronisation with the device.
        chosen = bernoulli(len(images), self.probability, generator).nonzero()[:, 0]  # (b,)
        sigma = low + (high - low) * uniform(len(images), generator=generator)  # (B,)
        sigma, chosen = sigma[chosen].to(images.device), chosen.to(images.device)
        radius = math.ceil(TRUNCATE * high)
        rows = blur_weights(sigma, images.shape[2], radius)
        columns = blur_weights(sigma, images.shape[3], radius)
        return images.index_copy(0, chosen, separable(images[chosen], rows, columns))
