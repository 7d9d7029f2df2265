"""Resampling of images as matrix products, with the antialiased filters of Pillow.

Resizing is linear and separable: every output row is a weighted sum of input rows, and likewise for
columns. That is one matrix on either side of an image, so a batch of different crops takes two
batched matrix products.
"""

from __future__ import annotations

import math
from functools import lru_cache
from typing import Literal

import torch
from torch import Tensor

from psco.errors import InputError

Filter = Literal["bilinear", "bicubic"]

RADIUS: dict[str, int] = {"bilinear": 1, "bicubic": 2}

BUFFER = 2**18  # pixels that are resampled at a time, to stay in the cache of a core
TABLED = 512  # sides up to which the weights of all intervals are cached, in 4 MB


def filter_values(distance: Tensor, filter: Filter) -> Tensor:
    """Evaluate a resampling filter: the triangle or the cubic with a = -0.5.

    Parameters
    ----------
    distance
        Distances from the centre of the filter, any shape, in units of its sampling step.

    Returns
    -------
    Tensor
        Of the same shape; zero beyond ``RADIUS[filter]``.
    """
    within = (RADIUS[filter] - distance.abs()).clamp_(min=0)
    if filter == "bilinear":
        return within
    # The two cubics of the bicubic filter, expanded at the points 2 and 1 where they start.
    closer = (within - 1).clamp_(min=0)
    outer = (within - 1).mul_(within).mul_(within).mul_(0.5)
    return outer.add_((1 - 2 * closer).mul_(closer).mul_(closer))


def resize_weights(
    start: Tensor, length: Tensor, source: int, target: int, filter: Filter
) -> Tensor:
    """Return the weights that resample an interval of pixels of each image along one axis.

    The filter is widened by the reduction factor, as in Pillow, and does not use pixels outside
    the interval: the image is cropped first, then resized.

    Parameters
    ----------
    start, length
        (B,) int64, the first pixel and the number of pixels of each interval, which has at least
        one pixel and is within [0, source].
    source
        Number of input pixels along the axis.
    target
        Number of output pixels along the axis.
    filter
        ``"bilinear"`` or ``"bicubic"``.

    Returns
    -------
    Tensor
        (B, target, source) float32; each row sums to one and is zero outside the interval.

    Raises
    ------
    InputError
        If the filter is unknown.
    """
    if filter not in RADIUS:
        raise InputError(f"filter must be one of {', '.join(RADIUS)}, not {filter!r}")
    if source <= TABLED:
        # The start only shifts the weights, and there are few lengths.
        table = all_stretches(source, target, filter, start.device)
        first, weights = (values[length - 1] for values in table)
    else:
        first, weights = _stretch_weights(length, source, target, filter)
    taps = torch.arange(weights.shape[2], device=start.device)
    # Taps beyond the interval have weight zero, so their position does not matter.
    pixel = (first + start[:, None])[:, :, None].add(taps).clamp_(max=source - 1)  # (B, t, k)
    dense = torch.zeros(len(start), target, source, device=start.device)
    return dense.scatter_add_(2, pixel, weights)  # (B, t, s)


def _stretch_weights(
    length: Tensor, source: int, target: int, filter: Filter
) -> tuple[Tensor, Tensor]:
    """Return the weights of intervals that begin at the first pixel, without surrounding zeros.

    Parameters
    ----------
    length
        (n,) int64, from 1 to ``source``.
    source, target, filter
        As in `resize_weights`.

    Returns
    -------
    first
        (n, target) int64, the first pixel under the filter.
    weights
        (n, target, k) float32, of that pixel and the following ones; k is the width of the widest
        filter, that of an interval of ``source`` pixels.
    """
    device, radius = length.device, RADIUS[filter]
    length = length.double()[:, None]  # (n, 1)
    scale = length / target
    stretch = scale.clamp(min=1)
    steps = torch.arange(target, device=device, dtype=torch.float64)
    centre = (steps + 0.5) * scale  # (n, t)
    first = (centre - radius * stretch + 0.5).floor().clamp_(min=0)  # (n, t)
    taps = torch.arange(2 * math.ceil(radius * max(source / target, 1)) + 1, device=device)  # (k,)
    offset = ((first + 0.5 - centre) / stretch).float()  # (n, t)
    step = (taps / stretch).float()  # (n, k)
    weights = filter_values(offset[:, :, None] + step[:, None, :], filter)  # (n, t, k)
    left = (length - first).float()  # (n, t), pixels from the first to the end of the interval
    weights *= taps.float() < left[:, :, None]
    weights /= weights.sum(2, keepdim=True)
    return first.long(), weights


@lru_cache(maxsize=16)
def all_stretches(
    source: int, target: int, filter: Filter, device: torch.device
) -> tuple[Tensor, Tensor]:
    """Return `_stretch_weights` of the lengths 1, ..., ``source``: about 16 source^2 bytes."""
    return _stretch_weights(torch.arange(1, source + 1, device=device), source, target, filter)


def separable(images: Tensor, rows: Tensor, columns: Tensor) -> Tensor:
    """Apply one matrix to the rows and one to the columns of every image.

    Columns are resampled first and the intermediate result is clamped to [0, 1], as in Pillow,
    which stores it in 8 bits; this matters where the bicubic filter overshoots. (Since version 13,
    Pillow starts with the rows if the height shrinks much more than the width.)

    Parameters
    ----------
    images
        (B, C, H, W), float32 in [0, 1] or uint8.
    rows
        (B, h, H) float32, or (1, h, H) for all images.
    columns
        (B, w, W) float32, or (1, w, W).

    Returns
    -------
    Tensor
        (B, C, h, w) float32 in [0, 1], contiguous.
    """
    B, C, H, W = images.shape
    h, w = rows.shape[1], columns.shape[1]
    unit = 1 / 255 if images.dtype == torch.uint8 else 1.0
    rows, columns = rows.expand(B, h, H), columns.transpose(1, 2).expand(B, W, w)
    # A few images at a time, in reused buffers: allocating memory for the whole batch takes longer
    # than the products.
    few = max(1, min(B, BUFFER // (C * H * W)))
    source = columns.new_empty(few, H, C, W)
    between = columns.new_empty(few, H * C, w)
    product = columns.new_empty(few, h, C * w)
    result = columns.new_empty(B, C, h, w)
    for start in range(0, B, few):
        these = slice(start, min(start + few, B))
        n = these.stop - start
        # With the channels between rows and columns, each product covers all channels.
        lines = source[:n].copy_(images[these].transpose(1, 2)).view(n, H * C, W)
        torch.bmm(lines, columns[these], out=between[:n]).mul_(unit).clamp_(0, 1)
        torch.bmm(rows[these], between[:n].view(n, H, C * w), out=product[:n])
        done = product[:n].view(n, h, C, w).transpose(1, 2)  # (n, C, h, w)
        torch.clamp(done, 0, 1, out=result[these])
    return result


def resize(images: Tensor, size: int, filter: Filter = "bilinear") -> Tensor:
    """Resize the short side of images to ``size``, and crop the long one to its centre.

    Parameters
    ----------
    images
        (B, C, H, W), float32 in [0, 1] or uint8.
    size
        Side of the result in pixels, at least 1.
    filter
        ``"bilinear"`` or ``"bicubic"``.

    Returns
    -------
    Tensor
        (B, C, size, size) float32 in [0, 1].
    """
    height, width = images.shape[2:]
    if height == width == size:
        return to_float(images)
    rows = _centre_weights(height, min(height, width), size, filter, images.device)
    columns = _centre_weights(width, min(height, width), size, filter, images.device)
    return separable(images, rows, columns)


def to_float(images: Tensor) -> Tensor:
    """Return uint8 images as float32 in [0, 1]; float images are returned unchanged."""
    return images.float().div_(255) if images.dtype == torch.uint8 else images


def _centre_weights(
    side: int, short: int, size: int, filter: Filter, device: torch.device
) -> Tensor:
    """Return weights that scale a side by ``size / short`` and keep the centre: (1, size, side)."""
    target = size * side // short
    start = torch.zeros(1, device=device, dtype=torch.int64)
    weights = resize_weights(start, torch.full_like(start, side), side, target, filter)
    margin = round((target - size) / 2)
    return weights[:, margin : margin + size]
