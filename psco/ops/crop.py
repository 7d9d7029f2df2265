"""Crops of a batch of images, each resized to a square: a native kernel or matrix products."""

from __future__ import annotations

import torch
from torch import Tensor

from psco.errors import InputError
from psco.ops.native import check_boxes, crops, supports_crops
from psco.ops.resample import TABLED, Filter, all_stretches, resize_weights, separable


def crop_resize(images: Tensor, boxes: Tensor, size: int, filter: Filter) -> Tensor:
    """Cut one box out of every image and resize it to a square.

    Parameters
    ----------
    images
        (B, C, H, W), float32 in [0, 1] or uint8.
    boxes
        (B, 4) int64: top, left, height, width, inside the image.
    size
        Side of the result in pixels, at least 1.
    filter
        ``"bilinear"`` or ``"bicubic"``.

    Returns
    -------
    Tensor
        (B, C, size, size) float32 in [0, 1]; Pillow's ``image.crop(box).resize(...)`` up to its
        rounding to 8 bits.

    Raises
    ------
    InputError
        If the images are not of this shape, the size is less than 1 or a box is not inside.
    """
    if images.ndim != 4:
        raise InputError(f"images must be (B, C, H, W), got {tuple(images.shape)}")
    if size < 1:
        raise InputError(f"size must be at least 1 pixel, got {size}")
    sides = images.shape[2:]
    boxes = check_boxes(boxes, len(images), *sides)
    if images.numel() == 0:
        return torch.zeros(*images.shape[:2], size, size, device=images.device)
    if supports_crops(images) and max(sides) <= TABLED:
        of_rows, of_columns = (all_stretches(s, size, filter, images.device) for s in sides)
        return crops(images, boxes, size, of_rows, of_columns)
    top, left, height, width = boxes.to(images.device).unbind(1)
    rows = resize_weights(top, height, images.shape[2], size, filter)
    columns = resize_weights(left, width, images.shape[3], size, filter)
    return separable(images, rows, columns)
