"""Tar shards read from end to end, for places where reading here and there is slow.

An epoch puts the shards into a random order and gives each rank an equal, unbroken part of all the
images in that order. A buffer of encoded images shuffles them on their way. All of it follows from
(seed, epoch) and the index of the shards, so the number of a batch is also the position in every
shard, and a resumed run fills its buffer with exactly what was in it.
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
from psco.training.feed import Batch, Feed
from psco.views import to_batch

Encoded = tuple[np.ndarray, list[bytes]]  # (B,) numbers of images, and their contents
_AHEAD = 2  # batches that are read before they are asked for


class StreamFeed(Feed):
    """Endless mini-batches from shards that are read in order, each byte once in an epoch.

    ``feed.batches(n)`` reads forward only; ``feed[n]`` gives the same batch by looking for its
    images. In an epoch each image comes once on one of the ranks, except for an incomplete rest.

    Parameters
    ----------
    images
        A data set of tar shards.
    batch_size
        Images in a batch of all ranks together.
    seed
        With the epoch's number it decides the order of shards and the shuffling.
    workers
        Processes that decode; see `Feed`. Reading is done by a thread of this process.
    buffer
        Encoded images to choose from at random; it takes memory and time at the start.
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
                f"only tar shards are read from end to end, and {images.name!r} is none; "
                f"--set train.shuffle_buffer=0"
            )
        if buffer < 1:
            raise InputError(f"buffer must be at least 1, not {buffer}")
        self._images, self._shards, self._size = images.images, images.images.files, buffer
        self.split(rank, ranks)

    def split(self, rank: int, ranks: int) -> None:
        """Read the part of one rank alone; sizes and numbers stay those of all ranks.

        Parameters
        ----------
        rank, ranks
            Which part this is, from 0, and of how many. It has ``batch_size / ranks`` images of
            each batch.

        Raises
        ------
        InputError
            If the batch cannot be split evenly.
        """
        if not 0 <= rank < ranks or self.batch_size % ranks:
            raise InputError(
                f"rank {rank} of {ranks} cannot have its share of a batch of {self.batch_size} "
                f"images; --set train.batch_size={-(-self.batch_size // ranks) * ranks}"
            )
        self._rank, self._ranks, self._own = rank, ranks, self.batch_size // ranks
        self._length = self.batches_per_epoch * self._own  # images of an epoch here
        self._buffer = min(self._size, self._length)
        self._epoch = -1

    @property
    def share(self) -> tuple[int, int] | None:
        """First row and size of the whole batch if this feed gives a part of it, else None."""
        return None if self._ranks == 1 else (self._rank * self._own, self.batch_size)

    def plan(self, epoch: int) -> tuple[np.ndarray, np.ndarray]:
        """Give what is read in an epoch, and in which order it comes out of the buffer.

        Returns
        -------
        stream
            (m,) int64, the images in the order of reading.
        order
            (m,) int64, a permutation of the places in ``stream``: at time t comes ``order[t]``,
            which is below t + buffer.
        """
        # All ranks draw the same order of shards, and then each its own shuffling.
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
        """Give the (B / ranks,) indices of batch ``number`` (from 0) on this rank."""
        epoch, place = divmod(number, self.batches_per_epoch)
        if epoch != self._epoch:
            stream, order = self.plan(epoch)
            self._epoch, self._order = epoch, stream[order]
        indices: np.ndarray = self._order[place * self._own : (place + 1) * self._own]
        return indices

    def batches(self, start: int) -> Iterator[Batch]:
        """Give the batches ``start``, ``start + 1``, ... without end."""
        # Read here and decoded by the workers, so that batches do not depend on their number.
        decoder = _Decoder(self._images, self._set.labels)
        return self._load(decoder, _read_ahead(self._encoded(start)))

    def _encoded(self, start: int) -> Iterator[Encoded]:
        """Give the batches from ``start`` on, not decoded yet."""
        incoming = self._incoming(start)
        held: dict[int, tuple[int, bytes]] = {}  # by position, counted through all epochs
        last = -1
        for epoch in itertools.count(start // self.batches_per_epoch):
            order = self.plan(epoch)[1] + epoch * self._length
            skipped = max(start - epoch * self.batches_per_epoch, 0)
            for place in range(skipped * self._own, self._length, self._own):
                # What comes at time t is below t + buffer; see `plan`.
                until = epoch * self._length + place + self._own + self._buffer - 2
                while last < until:
                    last, number, content = next(incoming)
                    held[last] = number, content
                chosen = [held.pop(p) for p in order[place : place + self._own].tolist()]
                yield np.array([n for n, _ in chosen]), [content for _, content in chosen]

    def _incoming(self, start: int) -> Iterator[tuple[int, int, bytes]]:
        """Read what is in the buffer before batch ``start``, and all that enters it later.

        Yields positions, counted through all epochs and ascending, image numbers and contents.
        """

        def places() -> Iterator[tuple[int, int]]:
            for epoch in itertools.count(start // self.batches_per_epoch):
                stream, order = self.plan(epoch)
                done = max(start - epoch * self.batches_per_epoch, 0) * self._own
                left = np.sort(order[done:])
                yield from zip(
                    (left + epoch * self._length).tolist(), stream[left].tolist(), strict=True
                )

        positions, numbers = itertools.tee(places())
        contents = self._shards.read_through(number for _, number in numbers)
        for (position, number), content in zip(positions, contents, strict=True):
            yield position, number, content


class _Decoder(Dataset[Batch]):
    """What worker processes do: turn encoded images into a batch."""

    def __init__(self, images: LazyImages, labels: np.ndarray | None) -> None:
        self._images, self._labels = images, labels

    def __getitem__(self, batch: Encoded) -> Batch:
        numbers, contents = batch
        labels = None if self._labels is None else torch.from_numpy(self._labels[numbers])
        return to_batch(self._images.decode(numbers, contents)), labels


def shuffle_buffer(length: int, size: int, random: np.random.Generator) -> np.ndarray:
    """Give the order in which a shuffle buffer lets out what enters it in order.

    The buffer is filled; then one of its places is drawn at a time, let out and filled with what
    comes next; in the end the rest comes out at random.

    Parameters
    ----------
    length
        How much goes through.
    size
        Places of the buffer, from 1 to ``length``.
    random
        Decides.

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
    """Let a thread read while the others compute; the batches stay as they are."""
    pool = ThreadPoolExecutor(1)
    try:
        waiting = deque(pool.submit(next, batches) for _ in range(_AHEAD))
        while True:
            waiting.append(pool.submit(next, batches))
            yield waiting.popleft().result()
    finally:
        pool.shutdown(cancel_futures=True)
