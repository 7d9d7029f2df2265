"""The order in which training sees the images, as a function of (seed, batch number) alone.

`Feed` shuffles the whole data set, `EpisodeFeed` draws few-shot tasks from its classes or from
labels that a method has found, and `StreamFeed` (in ``psco.training.stream``) reads tar shards in
order.
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterable, Iterator
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset

from psco.data import ImageSet
from psco.data.labellings import LabellingDrawer
from psco.errors import InputError
from psco.methods import Episode
from psco.ops.order import epoch_order
from psco.training.signals import follow_parent
from psco.views import to_batch

ImagesAndLabels = tuple[Tensor, Tensor | None]


class Feed(Dataset[ImagesAndLabels]):
    """Endless shuffled mini-batches; an epoch is a permutation without the incomplete last batch.

    ``feed[number]`` is batch ``number``: images (B, C, H, W) uint8 and, if the data set has labels,
    labels (B,) int64, for diagnostics and supervised methods.

    Parameters
    ----------
    images
        The data set.
    batch_size
        Images in a batch.
    seed
        Determines the permutations, together with the number of the epoch.
    workers
        Processes that gather and decode batches ahead. None means one per core if images are
        decoded on access, and none if they are in memory. The batches do not depend on it.
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
            raise InputError(f"workers must be at least 0, got {workers}")
        if workers is None:
            workers = (os.cpu_count() or 1) if images.decodes else 0
        self._rows = slice(None)
        self._set, self._seed, self._workers = images, seed, workers
        self._epoch, self._order = -1, np.empty(0, dtype=np.int64)
        self.batch_size = batch_size
        self.batches_per_epoch = len(images) // batch_size

    def indices(self, number: int) -> np.ndarray:
        """Return the (B,) indices of batch ``number`` (from 0)."""
        epoch, place = divmod(number, self.batches_per_epoch)
        if epoch != self._epoch:
            self._epoch, self._order = epoch, epoch_order(self._seed, epoch, len(self._set))
        size = self.batch_size
        indices: np.ndarray = self._order[place * size : (place + 1) * size]
        return indices

    def split(self, rank: int, ranks: int) -> None:
        """Keep only one rank's rows of every batch; sizes and numbers still refer to whole batches.

        Raises
        ------
        InputError
            If the batch cannot be split evenly.
        """
        check_split(self.batch_size, ranks)
        count = self.batch_size // ranks
        self._rows = slice(rank * count, (rank + 1) * count)

    @property
    def rows(self) -> tuple[int, int] | None:
        """First row and size of the whole batch if this feed yields a part of it, else None."""
        return None if self._rows.start is None else (self._rows.start, self.batch_size)

    def __getitem__(self, number: int) -> ImagesAndLabels:
        indices = self.indices(number)[self._rows]
        labels = None if self._set.labels is None else torch.from_numpy(self._set.labels[indices])
        return to_batch(self._set.images[indices]), labels

    def batches(self, start: int) -> Iterator[ImagesAndLabels]:
        """Yield the batches ``start``, ``start + 1``, ... without end."""
        return self._load(self, itertools.count(start))

    def _load(
        self, dataset: Dataset[ImagesAndLabels], keys: Iterable[Any]
    ) -> Iterator[ImagesAndLabels]:
        """Yield ``dataset[key]`` for each key, computed by the workers."""
        loader = DataLoader(
            _WithErrors(dataset),
            batch_size=None,  # an item already is a batch
            sampler=keys,
            num_workers=self._workers,
            pin_memory=torch.cuda.is_available(),
            worker_init_fn=partial(follow_parent, os.getpid()),
        )
        for batch in loader:
            if isinstance(batch, InputError):
                raise batch
            yield batch


class _WithErrors(Dataset[ImagesAndLabels | InputError]):
    """Returns InputErrors, because DataLoader would wrap the worker's traceback around them."""

    def __init__(self, dataset: Dataset[ImagesAndLabels]) -> None:
        self._dataset = dataset

    def __getitem__(self, key: Any) -> ImagesAndLabels | InputError:
        try:
            return self._dataset[key]
        except InputError as error:
            return InputError(str(error))


def check_split(batch_size: int, ranks: int) -> None:
    """Raise InputError unless all ranks can have the same number of images of a batch."""
    if batch_size % ranks:
        raise InputError(
            f"a batch of {batch_size} images cannot be split evenly over {ranks} ranks; "
            f"--set train.batch_size={-(-batch_size // ranks) * ranks}"
        )


class EpisodeFeed(Feed):
    """Endless few-shot tasks: a batch holds the images of T tasks, class by class.

    The order is that of (T, N, K + Q), the K supports of a class before its Q queries. An epoch is
    as many batches as the number of images allows.

    Parameters
    ----------
    images
        The data set.
    episode
        The shape of a batch.
    seed, workers
        See `Feed`.
    labels
        (n,) or (P, n) labels to draw tasks from, see `LabellingDrawer`; by default those of the
        data set, which then must have some.

    Raises
    ------
    InputError
        If there are too few classes with enough images.
    """

    def __init__(
        self,
        images: ImageSet,
        episode: Episode,
        seed: int,
        workers: int | None = None,
        labels: np.ndarray | None = None,
    ) -> None:
        labels = images.labels if labels is None else labels
        assert labels is not None
        try:
            drawer = LabellingDrawer(labels, episode.ways, episode.shots, episode.queries)
        except InputError as error:
            raise InputError(
                f"{images.name!r} is too small for the training tasks: {error}; lower method.ways, "
                f"method.shots or method.queries"
            ) from None
        # The tasks of a step are independent: together they may have more images than the set.
        super().__init__(images, min(episode.images, len(images)), seed, workers)
        self.batch_size = episode.images
        self._drawer = drawer
        self._tasks = episode.tasks

    def indices(self, number: int) -> np.ndarray:
        """Return the (B,) indices of batch ``number`` (from 0)."""
        stream = np.random.Philox(key=[self._seed, number])
        return self._drawer.draw(stream, self._tasks).reshape(-1)
