"""The order in which training sees the images, a pure function of (seed, batch number)."""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterator

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset

from psco.data import ImageSet
from psco.errors import InputError
from psco.views import to_batch

Batch = tuple[Tensor, Tensor | None]


class Feed(Dataset[Batch]):
    """Endless shuffled mini-batches; an epoch is one permutation without its incomplete rest.

    ``feed[number]`` is the batch ``number``: images (B, C, H, W) uint8 and, where the data set has
    them, labels (B,) int64, which are for diagnostics only.

    Parameters
    ----------
    images
        The data set.
    batch_size
        Images in a batch.
    seed
        With the epoch's number it decides the permutation.
    workers
        Processes that gather and decode batches ahead. None: one for each core if the images are
        decoded at every access, none if they are in memory. The batches are the same in any case.
    """

    def __init__(
        self, images: ImageSet, batch_size: int, seed: int, workers: int | None = None
    ) -> None:
        if batch_size > len(images):
            raise InputError(
                f"batch_size {batch_size} is larger than the data set of {len(images)} images; "
                f"--set train.batch_size={max(2, len(images) // 2)}"
            )
        if workers is not None and workers < 0:
            raise InputError(f"workers must be at least 0, not {workers}")
        if workers is None:
            workers = (os.cpu_count() or 1) if images.decodes else 0
        self._set, self._size, self._seed, self._workers = images, batch_size, seed, workers
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

    def __getitem__(self, number: int) -> Batch:
        indices = self.indices(number)
        labels = None if self._set.labels is None else torch.from_numpy(self._set.labels[indices])
        return to_batch(self._set.images[indices]), labels

    def batches(self, start: int) -> Iterator[Batch]:
        """Give the batches ``start``, ``start + 1``, ... without end."""
        loader = DataLoader(
            self,
            batch_size=None,  # an item is a batch already
            sampler=itertools.count(start),
            num_workers=self._workers,
            pin_memory=torch.cuda.is_available(),
        )
        return iter(loader)
