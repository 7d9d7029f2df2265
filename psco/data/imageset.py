"""The type of every loaded data set: images of equal size, optionally with labels."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Protocol

import numpy as np

from psco.errors import InputError, counted


class ImageArray(Protocol):
    """A uint8 array (n, H, W, C), or an object indexed like one that computes images on demand."""

    @property
    def shape(self) -> tuple[int, ...]:
        """(n, H, W, C)."""

    @property
    def dtype(self) -> np.dtype[Any]:
        """Always uint8."""

    def __len__(self) -> int: ...

    def __getitem__(self, index: Any) -> np.ndarray:
        """Return images; the first axis takes any index of an array."""


@dataclass(frozen=True)
class ImageSet:
    """A set of images of equal size, with labels where they are known.

    Parameters
    ----------
    images
        (n, H, W, C) uint8, C being 1 (grey) or 3 (RGB); an array, possibly memory-mapped, or an
        object that decodes images at every access.
    labels
        (n,) int64, indices into ``classes``, or None for unlabelled images.
    classes
        The name of each class; empty when there are no labels.
    name, split
        Name of the data set and of the split.
    """

    images: ImageArray
    labels: np.ndarray | None = None
    classes: tuple[str, ...] = ()
    name: str = "images"
    split: str = "all"

    def __post_init__(self) -> None:
        shape, dtype = self.images.shape, self.images.dtype
        if len(shape) != 4 or shape[3] not in (1, 3) or dtype != np.uint8:
            raise InputError(
                f"images must be uint8 of shape (n, H, W, 1 or 3), not {dtype} of shape {shape}"
            )
        if self.labels is not None and self.labels.shape != (len(self.images),):
            number = len(self.images)
            raise InputError(
                f"labels of {counted(number, 'image')} must have shape ({number},), not "
                f"{self.labels.shape}"
            )

    def __len__(self) -> int:
        return len(self.images)

    @property
    def channels(self) -> int:
        """Number of colour channels, 1 or 3."""
        return int(self.images.shape[3])

    @property
    def decodes(self) -> bool:
        """Whether the images are decoded at every access, rather than kept in memory."""
        return bool(getattr(self.images, "decodes", False))

    def unlabelled(self) -> ImageSet:
        """Return the same images without labels, which training must not see."""
        return replace(self, labels=None, classes=())


def with_channels(images: ImageSet, channels: int | None) -> ImageSet:
    """Return the images in grey (1) or RGB (3); grey is the luma of ITU-R 601, as in Pillow."""
    if channels is None or images.channels == channels:
        return images
    if channels == 3:
        converted = np.repeat(images.images[:], 3, axis=3)
    else:
        luma = images.images[:] @ np.array([0.299, 0.587, 0.114], dtype=np.float32)
        converted = np.rint(luma).astype(np.uint8)[..., None]
    return ImageSet(converted, images.labels, images.classes, images.name, images.split)
