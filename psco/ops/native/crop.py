"""Crops, a box at a time in the cache: see ``crop.c``."""

from __future__ import annotations

import torch
from torch import Tensor

from psco.ops.native.build import call, floats, library, scratch

Stretches = tuple[Tensor, Tensor]  # first pixels (n, size) and weights (n, size, taps) by length


def suits_crops(images: Tensor) -> bool:
    """Say whether `crops` takes these images."""
    known = images.dtype in (torch.uint8, torch.float32)
    return known and images.device.type == "cpu" and library() is not None


def crops(images: Tensor, boxes: Tensor, size: int, rows: Stretches, columns: Stretches) -> Tensor:
    """Cut one box out of every image and resize it to a square.

    Parameters
    ----------
    images
        (B, C, H, W), float32 in [0, 1] or uint8, stored in any order.
    boxes
        (B, 4) int64: top, left, height, width, inside the image.
    size
        Side of the result in pixels.
    rows, columns
        Weights of stretches of 1, 2, ..., H and of 1, 2, ..., W pixels that become ``size``.

    Returns
    -------
    Tensor
        (B, C, size, size) float32 in [0, 1].
    """
    B, C, H, W = images.shape
    threads, bytes_ = torch.get_num_threads(), int(images.dtype == torch.uint8)
    out = floats(B, C, size, size)
    memory = scratch("crop_scratch", H, W, size)
    weights = (*rows, rows[1].shape[2], *columns, columns[1].shape[2])
    sizes = (bytes_, *images.stride(), B, C, H, W, size, threads)
    call("crop_resize", images, boxes.contiguous(), *weights, out, memory, *sizes)
    return out
