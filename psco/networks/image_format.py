"""What the images look like that a network takes: size, channels and normalisation."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True)
class ImageFormat:
    """The input of a network.

    Parameters
    ----------
    size
        Side in pixels.
    channels
        1 for grey, 3 for RGB.
    mean, std
        What is subtracted from each channel in [0, 1], and what it is then divided by.
    """

    size: int
    channels: int
    mean: tuple[float, ...]
    std: tuple[float, ...]

    def to_unit(self, x: Tensor) -> Tensor:
        """Return normalised images (..., C, H, W) with pixels in [0, 1], as generators see them."""
        return (x * self._column(self.std, x) + self._column(self.mean, x)).clamp(0, 1)

    def from_unit(self, x: Tensor) -> Tensor:
        """Return images (..., C, H, W) with pixels in [0, 1] normalised, as networks see them."""
        return (x - self._column(self.mean, x)) / self._column(self.std, x)

    def _column(self, numbers: tuple[float, ...], like: Tensor) -> Tensor:  # (C, 1, 1)
        return torch.tensor(numbers, dtype=like.dtype, device=like.device)[:, None, None]
