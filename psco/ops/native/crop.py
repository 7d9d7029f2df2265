"""Crops, one box at a time in the cache: see ``crop.c``."""

from __future__ import annotations

import torch
from torch import Tensor

from psco.errors import InputError
from psco.ops.native.build import call, floats, library, scratch
from psco.ops.native.check import count, describe, expect, require

Stretches = tuple[Tensor, Tensor]  # first pixels (n, size) and weights (n, size, taps) by length


def supports_crops(images: Tensor) -> bool:
    """Whether `crops` takes these images."""
    known = images.dtype in (torch.uint8, torch.float32) and images.layout == torch.strided
    return known and images.ndim == 4 and images.device.type == "cpu" and library() is not None


def crops(images: Tensor, boxes: Tensor, size: int, rows: Stretches, columns: Stretches) -> Tensor:
    """Cut one box out of every image and resize it to a square.

    Parameters
    ----------
    images
        (B, C, H, W), float32 in [0, 1] or uint8, of any strides.
    boxes
        (B, 4), whole numbers: top, left, height, width, inside the image.
    size
        Side of the result in pixels.
    rows, columns
        Weights of stretches of 1, 2, ..., H and of 1, 2, ..., W pixels that become ``size``.

    Returns
    -------
    Tensor
        (B, C, size, size) float32 in [0, 1].

    Raises
    ------
    InputError
        If a shape, a number format or a box is not as above.
    """
    allowed = "uint8 or float32 images (B, C, H, W) on cpu"
    require(supports_crops(images), "crops", allowed, images)
    images = images.resolve_neg()
    B, C, H, W = images.shape
    boxes, size = check_boxes(boxes, B, H, W), count("size", size)
    of_rows = _check_stretches("rows", rows, H, size)
    of_columns = _check_stretches("columns", columns, W, size)
    threads, bytes_ = torch.get_num_threads(), int(images.dtype == torch.uint8)
    out = floats(B, C, size, size)
    weights = (*of_rows, rows[1].shape[2], *of_columns, columns[1].shape[2])
    sizes = (bytes_, *images.stride(), B, C, H, W, size, threads)
    memory = scratch(threads, "crop_scratch", H, W, size)
    call("crop_resize", images, boxes, *weights, out, memory, *sizes)
    return out


def check_boxes(boxes: Tensor, number: int, height: int, width: int) -> Tensor:
    """Return boxes (B, 4) as int64, contiguous.

    Raises
    ------
    InputError
        If they are not ``number`` boxes of whole numbers inside an image of these sides.
    """
    whole = not (boxes.is_floating_point() or boxes.is_complex() or boxes.dtype == torch.bool)
    known = boxes.layout == torch.strided and boxes.device.type != "meta"
    if boxes.shape != (number, 4) or not whole or not known:
        raise InputError(f"boxes must be whole numbers ({number}, 4), not {describe(boxes)}")
    boxes = boxes.long().contiguous()
    sides = torch.tensor([height, width], device=boxes.device)
    corner, extent = boxes[:, :2], boxes[:, 2:]
    # A sum of corner and extent could overflow; the difference of sides within bounds cannot.
    inside = (corner >= 0) & (extent >= 1) & (extent <= sides) & (corner <= sides - extent)
    if not inside.all():
        box = boxes[int(inside.all(dim=1).int().argmin())].tolist()
        raise InputError(
            f"a box (top, left, height, width) must lie in {height} x {width} px, not {box}"
        )
    return boxes


def _check_stretches(name: str, found: Stretches, side: int, size: int) -> Stretches:
    first, weights = found
    if weights.ndim != 3 or weights.shape[2] < 1:
        allowed = f"({side}, {size}, taps)"
        raise InputError(f"weights of {name} must be {allowed}, not {tuple(weights.shape)}")
    first = expect(f"first pixels of {name}", first, (side, size), torch.int64)
    weights = expect(f"weights of {name}", weights, (side, size, weights.shape[2]))
    if side > 0:
        least, most = map(int, first.aminmax())
        if least < 0 or most >= side:
            bad = least if least < 0 else most
            raise InputError(f"first pixels of {name} must be from 0 to {side - 1}, not {bad}")
    return first, weights
