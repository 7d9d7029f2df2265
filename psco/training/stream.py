"""Tar shards read in order, for storage where random access is slow.

In an epoch, the shards come in a random order, and each rank reads an equal, contiguous part of
their images. A buffer of encoded images shuffles them. Everything follows from (seed, epoch) and
the index of the shards, so the number of a batch determines the position in every shard, and a
resumed run fills its buffer with exactly what was in it.
"""

from __future__ import annotations

import itertools
from collections import deque
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import torch
from torch.utils.data import Dataset

from psco.data import ImageSet
from psco.data.reading.lazy import LazyImages
from psco.data.reading.shards import Shards
from psco.errors import InputError
from psco.training.feed import Feed, ImagesAndLabels
from psco.views import to_batch

Encoded = tuple[np.ndarray, list[bytes]]  # (B,) numbers of images, and their contents
_READ_AHEAD = 2  # batches


class StreamFeed(Feed):
    """Endless mini-batches from shards read in order, each byte once per epoch.

    ``feed.batches(n)`` only reads forward; ``feed[n]`` returns the same batch by random access. In
    an epoch each image appears once on one of the ranks, except for the incomplete last batch.

    Parameters
    ----------
    images
        A data set of tar shards.
    batch_size
        Images in a batch, all ranks together.
    seed
        Determines the order of shards and the shuffling, together with the number of the epoch.
    workers
        Processes that decode; see `Feed`. A thread of this process reads.
    buffer
        Encoded images in the shuffle buffer. A larger one takes more memory and a longer start.
    rank, ranks
        See `split`.

    Raises
    ------
    InputError
        If the images are not in shards, or the batch cannot be split evenly.
    """

    def __init__(
        self,
        images: ImageSet,
        batch_size: int,
        seed: int,
        workers: int | None = None,
        *,
        buffer: int,
        rank: int = 0,
        ranks: int = 1,
    ) -> None:
        super().__init__(images, batch_size, seed, workers)
        if not isinstance(images.images, LazyImages) or not isinstance(images.images.files, Shards):
            raise InputError(
                f"train.shuffle_buffer is for tar shards, and {images.name!r} is not in shards; "
                f"--set train.shuffle_buffer=0"
            )
        if buffer < 1:
            raise InputError(f"buffer must be at least 1, got {buffer}")
        self._images, self._shards, self._size = images.images, images.images.files, buffer
        self.split(rank, ranks)

    def split(self, rank: int, ranks: int) -> None:
        """Read only one rank's part; sizes and numbers still refer to whole batches.

        Parameters
        ----------
        rank, ranks
            Number of this rank, from 0, and of all ranks. A rank has ``batch_size / ranks`` images
            of each batch.

        Raises
        ------
        InputError
            If the batch cannot be split evenly.
        """
        if not 0 <= rank < ranks or self.batch_size % ranks:
            raise InputError(
                f"a batch of {self.batch_size} images cannot be split evenly for rank {rank} of "
                f"{ranks}; --set train.batch_size={-(-self.batch_size // ranks) * ranks}"
            )
        self._rank, self._ranks, self._own = rank, ranks, self.batch_size // ranks
        self._length = self.batches_per_epoch * self._own  # images of an epoch on this rank
        self._buffer = min(self._size, self._length)
        self._epoch = -1

    @property
    def rows(self) -> tuple[int, int] | None:
        """First row and size of the whole batch if this feed yields a part of it, else None."""
        return None if self._ranks == 1 else (self._rank * self._own, self.batch_size)

    def epoch_order(self, epoch: int) -> tuple[np.ndarray, np.ndarray]:
        """Return what is read in an epoch, and the order in which it leaves the buffer.

        Returns
        -------
        stream
            (m,) int64, the images in reading order.
        order
            (m,) int64, a permutation of the positions in ``stream``: ``order[t]`` leaves the buffer
            at time t and is below t + buffer.
        """
        # All ranks draw the same order of shards; each then shuffles by itself.
        common = np.random.Philox(key=[self._seed, epoch])
        shards = np.random.Generator(common).permutation(len(self._shards.paths))
        counts = np.diff(self._shards.first)[shards]
        begins = np.cumsum(counts) - counts
        low, high = self._rank * self._length, (self._rank + 1) * self._length
        parts = [
            self._shards.first[shard] + np.arange(max(low - begin, 0), min(high - begin, count))
            for shard, begin, count in zip(shards, begins, counts, strict=True)
        ]
        own = np.random.Generator(np.random.Philox(key=[self._seed, epoch]).jumped(self._rank + 1))
        return np.concatenate(parts), shuffle_buffer(self._length, self._buffer, own)

    def indices(self, number: int) -> np.ndarray:
        """Return the (B / ranks,) indices of batch ``number`` (from 0) on this rank."""
        epoch, place = divmod(number, self.batches_per_epoch)
        if epoch != self._epoch:
            stream, order = self.epoch_order(epoch)
            self._epoch, self._order = epoch, stream[order]
        indices: np.ndarray = self._order[place * self._own : (place + 1) * self._own]
        return indices

    def batches(self, start: int) -> Iterator[ImagesAndLabels]:
        """Yield the batches ``start``, ``start + 1``, ... without end."""
        # This process reads and the workers decode, so batches do not depend on the workers.
        decoder = _Decoder(self._images, self._set.labels)
        return self._load(decoder, _read_ahead(self._encoded(start)))

    def _encoded(self, start: int) -> Iterator[Encoded]:
        """Yield the batches from ``start`` on, not yet decoded."""
        incoming = self._incoming(start)
        held: dict[int, tuple[int, bytes]] = {}  # by position, counted through all epochs
        last = -1
        for epoch in itertools.count(start // self.batches_per_epoch):
            order = self.epoch_order(epoch)[1] + epoch * self._length
            skipped = max(start - epoch * self.batches_per_epoch, 0)
            for place in range(skipped * self._own, self._length, self._own):
                # What leaves the buffer at time t entered before t + buffer; see `epoch_order`.
                until = epoch * self._length + place + self._own + self._buffer - 2
                while last < until:
                    last, number, content = next(incoming)
                    held[last] = number, content
                chosen = [held.pop(p) for p in order[place : place + self._own].tolist()]
                yield np.array([n for n, _ in chosen]), [content for _, content in chosen]

    def _incoming(self, start: int) -> Iterator[tuple[int, int, bytes]]:
        """Read what is in the buffer before batch ``start`` and everything that enters it later.

        Yields positions (ascending, counted through all epochs), image numbers and contents.
        """

        def places() -> Iterator[tuple[int, int]]:
            for epoch in itertools.count(start // self.batches_per_epoch):
                stream, order = self.epoch_order(epoch)
                done = max(start - epoch * self.batches_per_epoch, 0) * self._own
                left = np.sort(order[done:])
                yield from zip(
                    (left + epoch * self._length).tolist(), stream[left].tolist(), strict=True
                )

        positions, numbers = itertools.tee(places())
        contents = self._shards.read_through(number for _, number in numbers)
        for (position, number), content in zip(positions, contents, strict=True):
            yield position, number, content


class _Decoder(Dataset[ImagesAndLabels]):
    """Decodes batches; this is what the worker processes do."""

    def __init__(self, images: LazyImages, labels: np.ndarray | None) -> None:
        self._images, self._labels = images, labels

    def __getitem__(self, batch: Encoded) -> ImagesAndLabels:
        numbers, contents = batch
        labels = None if self._labels is None else torch.from_numpy(self._labels[numbers])
        return to_batch(self._images.decode(numbers, contents)), labels


def shuffle_buffer(length: int, size: int, random: np.random.Generator) -> np.ndarray:
    """Return the order in which items that enter a shuffle buffer in order leave it.

    First the buffer is filled. Then a random item leaves and the next one takes its place, until
    all have entered; the rest leaves in random order.

    Parameters
    ----------
    length
        Number of items.
    size
        Size of the buffer, from 1 to ``length``.
    random
        Source of random numbers.

    Returns
    -------
    np.ndarray
        (length,) int64, a permutation with ``order[t] < t + size``.
    """
    held = list(range(size))
    order = []
    drawn = random.integers(0, size, length - size).tolist()
    for entering, place in enumerate(drawn, start=size):
        order.append(held[place])
        held[place] = entering
    return np.array(order + random.permutation(held).tolist(), dtype=np.int64)


def _read_ahead(batches: Iterator[Encoded]) -> Iterator[Encoded]:
    """Yield the same batches, read ahead by a thread."""
    pool = ThreadPoolExecutor(1)
    try:
        waiting = deque(pool.submit(next, batches) for _ in range(_READ_AHEAD))
        while True:
            waiting.append(pool.submit(next, batches))
            yield waiting.popleft().result()
    finally:
        pool.shutdown(cancel_futures=True)
