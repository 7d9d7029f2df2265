"""The order in which training sees the images, a pure function of (seed, batch number)."""

from __future__ import annotations

import numpy as np

from psco.data import ImageSet
from psco.errors import InputError


class Feed:
    """Endless shuffled mini-batches; an epoch is one permutation without its incomplete rest.

    Parameters
    ----------
    images
        The data set; its labels are passed on only as ``labels`` of a batch, for diagnostics.
    batch_size
        Images in a batch.
    seed
        With the epoch's number it decides the permutation.
    """

    def __init__(self, images: ImageSet, batch_size: int, seed: int) -> None:
        if batch_size > len(images):
            raise InputError(
                f"batch_size {batch_size} is larger than the data set of {len(images)} images; "
                f"--set train.batch_size={max(2, len(images) // 2)}"
            )
        self._set, self._size, self._seed = images, batch_size, seed
        self._epoch, self._order = -1, np.empty(0, dtype=np.int64)
        self.batches_per_epoch = len(images) // batch_size

    def indices(self, number: int) -> np.ndarray:
        """Give the (B,) indices of batch ``number`` (from 0)."""
        epoch, place = divmod(number, self.batches_per_epoch)
        if epoch != self._epoch:
            random = np.random.Generator(np.random.Philox(key=[self._seed, epoch]))
            self._epoch, self._order = epoch, random.permutation(len(self._set))
        indices: np.ndarray = self._order[place * self._size : (place + 1) * self._size]
        return indices

    def images(self, indices: np.ndarray) -> np.ndarray:
        """Give the images (B, H, W, C) uint8 of a batch."""
        images: np.ndarray = self._set.images[indices]
        return images

    def labels(self, indices: np.ndarray) -> np.ndarray | None:
        """Give the labels (B,) of a batch, or None."""
        return None if self._set.labels is None else self._set.labels[indices]
