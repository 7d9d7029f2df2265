"""A view: a sequence of parts, then normalisation."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from psco.errors import InputError, counted
from psco.ops.resample import resize, to_float
from psco.views.part import Part
from psco.views.warp import Warp, fuse


def to_batch(images: np.ndarray) -> Tensor:
    """Return stored images as a batch, without a copy if the array is writable.

    Parameters
    ----------
    images
        (B, H, W, C) uint8.

    Returns
    -------
    Tensor
        (B, C, H, W) uint8, in the channels-last memory format.

    Raises
    ------
    InputError
        If the array has another type or number of axes.
    """
    if images.ndim != 4 or images.dtype != np.uint8:
        raise InputError(
            f"images must be uint8 of shape (B, H, W, C), not {images.dtype} of shape "
            f"{images.shape}"
        )
    # PyTorch supports neither read-only tensors nor negative strides.
    shared = np.require(images, requirements=["C", "W"])
    return torch.from_numpy(shared).permute(0, 3, 1, 2)


def normalise(images: Tensor, mean: Sequence[float], std: Sequence[float]) -> Tensor:
    """Subtract the mean and divide by the standard deviation of each channel.

    Parameters
    ----------
    images
        (B, C, h, w) float32 in [0, 1].
    mean, std
        One number per channel, or one for all channels.

    Returns
    -------
    Tensor
        (B, C, h, w) float32, a new tensor in the channels-last memory format, in which
        convolutions are faster.

    Raises
    ------
    InputError
        If the number of means or deviations is neither 1 nor the number of channels.
    """
    check_channels(images, mean, std)
    shift = torch.tensor(mean, dtype=torch.float32, device=images.device)[:, None, None]
    scale = torch.tensor(std, dtype=torch.float32, device=images.device)[:, None, None]
    return (images - shift).div_(scale).contiguous(memory_format=torch.channels_last)


def plain_view(
    images: Tensor,
    size: int,
    mean: Sequence[float],
    std: Sequence[float],
    crop_from: int | None = None,
) -> Tensor:
    """Return the deterministic view that is used at test time: resized, then normalised.

    Parameters
    ----------
    images
        (B, C, H, W) uint8.
    size
        Side of the view in pixels; images that are not square are cropped to their centre.
    mean, std
        One number per channel, or one for all channels; deviations > 0.
    crop_from
        Resize to this side instead, at least ``size``, and take the centre; None to resize to
        ``size`` directly.

    Returns
    -------
    Tensor
        (B, C, size, size) float32, in the channels-last memory format.
    """
    check_images(images)
    check_size_and_norm(size, mean, std)
    if crop_from is None:
        return normalise(resize(images, size), mean, std)
    start = (crop_from - size) // 2
    centre = slice(start, start + size)
    return normalise(resize(images, crop_from)[:, :, centre, centre], mean, std)


@dataclass(frozen=True)
class View:
    """A random view of a batch of images.

    ``view(images, generator)`` maps (B, C, H, W) uint8 images to (B, C, size, size) float32 images,
    normalised, in the channels-last memory format. If no part resizes, the images are resized
    before the first one. Consecutive parts that only move pixels are applied in one step if one of
    them interpolates, see `Warp`.

    Parameters
    ----------
    parts
        The parts, in this order.
    size
        Side of the view in pixels.
    mean, std
        One number per channel, or one for all channels; deviations > 0.
    """

    parts: Sequence[Part]
    size: int
    mean: Sequence[float]
    std: Sequence[float]

    def __post_init__(self) -> None:
        check_size_and_norm(self.size, self.mean, self.std)
        fuse(self.parts)  # raises if parts cannot be fused

    @property
    def source_side(self) -> int | None:
        """Side in pixels to which larger images are first shrunk; None if they are not."""
        first = next(iter(fuse(self.parts)), None)
        return first.source_side(self.size) if isinstance(first, Warp) else None

    def __call__(self, images: Tensor, generator: torch.Generator) -> Tensor:
        """Draw a view of every image; all random numbers come from ``generator``."""
        check_images(images)
        check_channels(images, self.mean, self.std)
        batch = (*images.shape[:2], self.size, self.size)
        parts = fuse(self.parts)
        if not any(part.resizes for part in parts):
            images = resize(images, self.size)
        for part in parts:
            # A part that resizes converts to float itself, so large images are copied only once.
            images = part(images if part.resizes else to_float(images), self.size, generator)
        if images.shape != batch:
            shape = tuple(images.shape)
            raise InputError(f"the parts of a view must return shape {batch}, not {shape}")
        return normalise(images, self.mean, self.std)


def check_images(images: Tensor) -> None:
    """Raise InputError unless the images are a uint8 batch (B, C, H, W) with pixels."""
    if images.dtype != torch.uint8 or images.ndim != 4 or 0 in images.shape[1:]:
        raise InputError(
            f"images must be uint8 of shape (B, C, H, W), not {images.dtype} of shape "
            f"{tuple(images.shape)}"
        )


def check_channels(images: Tensor, mean: Sequence[float], std: Sequence[float]) -> None:
    """Raise InputError unless there is one mean and std for all channels, or one for each."""
    channels = images.shape[1]
    if len(mean) not in (1, channels) or len(std) not in (1, channels):
        allowed = "1" if channels == 1 else f"1 or {channels}"
        raise InputError(
            f"images with {counted(channels, 'channel')} need mean and std of length {allowed}, "
            f"not {len(mean)} and {len(std)}; set channels, mean and std of the recipe, or load "
            f"the images with channels={len(mean)}"
        )


def check_size_and_norm(size: int, mean: Sequence[float], std: Sequence[float]) -> None:
    """Raise InputError unless size and std are positive and mean and std are not empty."""
    if size < 1:
        raise InputError(f"size must be at least 1 pixel, not {size!r}")
    if len(mean) == 0 or len(std) == 0:
        raise InputError(f"mean and std need a number per channel, not {mean!r} and {std!r}")
    if not all(deviation > 0 for deviation in std):
        raise InputError(f"std must be greater than 0 for every channel, not {std!r}")
