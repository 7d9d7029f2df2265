"""The one type that every data set becomes: images in memory, perhaps labels."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Protocol

import numpy as np

from psco.errors import InputError


class ImageArray(Protocol):
    """An array (n, H, W, C) of uint8, or what indexes like one and makes its images on demand."""

    @property
    def shape(self) -> tuple[int, ...]:
        """(n, H, W, C)."""

    @property
    def dtype(self) -> np.dtype[Any]:
        """Always uint8."""

    def __len__(self) -> int: ...

    def __getitem__(self, index: Any) -> np.ndarray:
        """Give images; along the first axis any index of an array will do."""


@dataclass(frozen=True)
class ImageSet:
    """A set of equally large images, with labels where they are known.

    Parameters
    ----------
    images
        (n, H, W, C) uint8, C being 1 (grey) or 3 (RGB); may be memory-mapped, or indexed like an
        array and decoded at every access.
    labels
        (n,) int64, indices into ``classes``, or None for unlabelled images.
    classes
        The name of each class; empty when there are no labels.
    name, split
        Where the images come from, for reports.
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
            raise InputError(
                f"{len(self.images)} images need labels of shape ({len(self.images)},), "
                f"not {self.labels.shape}"
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
        """Give the same images without labels: what the training path is allowed to see."""
        return replace(self, labels=None, classes=())
