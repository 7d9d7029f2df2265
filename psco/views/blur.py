"""The sharpness of a view: a Gaussian blur whose width differs from image to image."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from psco.ops.resample import separable
from psco.views.part import bernoulli, check_probability, check_span, uniform

REACH = 3  # standard deviations of the widest Gaussian after which it is cut off


def blur_weights(sigma: Tensor, side: int, reach: int) -> Tensor:
    """Give the matrices that blur along one axis, the pixels at the edges repeated outwards.

    Parameters
    ----------
    sigma
        (B,), the standard deviation of each Gaussian in pixels, > 0.
    side
        Number of pixels along the axis.
    reach
        How many pixels the Gaussians go to either side.

    Returns
    -------
    Tensor
        (B, side, side) float32; each row sums to one.
    """
    taps = torch.arange(-reach, reach + 1, device=sigma.device)  # (k,)
    gauss = torch.exp(-0.5 * (taps / sigma[:, None]) ** 2)  # (B, k)
    gauss /= gauss.sum(1, keepdim=True)
    pixels = torch.arange(side, device=sigma.device)
    # Which tap of which output pixel falls on which input pixel is the same for all images.
    under = (pixels[:, None] + taps[:, None, None]).clamp_(0, side - 1) == pixels  # (k, s, s)
    return (gauss @ under.float().view(len(taps), -1)).view(len(sigma), side, side)


@dataclass(frozen=True)
class Blur:
    """Blur with a Gaussian.

    Parameters
    ----------
    sigma
        Least and greatest standard deviation in pixels of the view; uniform in between.
    probability
        How likely an image is blurred.
    """

    resizes: ClassVar[bool] = False

    sigma: tuple[float, float] = (0.1, 2.0)
    probability: float = 0.5

    def __post_init__(self) -> None:
        check_span("blur", "sigma", self.sigma)
        check_probability("blur", self.probability)

    def __call__(self, images: Tensor, size: int, generator: torch.Generator) -> Tensor:  # noqa: ARG002
        """Blur (B, C, H, W) float32 images."""
        low, high = self.sigma
        # Which ones is settled on the host, so that no device has to be asked for their number.
        chosen = bernoulli(len(images), self.probability, generator).nonzero()[:, 0]  # (b,)
        sigma = low + (high - low) * uniform(len(images), generator=generator)  # (B,)
        sigma, chosen = sigma[chosen].to(images.device), chosen.to(images.device)
        reach = math.ceil(REACH * high)
        rows = blur_weights(sigma, images.shape[2], reach)
        columns = blur_weights(sigma, images.shape[3], reach)
        return images.index_copy(0, chosen, separable(images[chosen], rows, columns))
