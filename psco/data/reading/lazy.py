"""Images that are decoded whenever they are looked at, since they would not fit into memory."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Protocol

import numpy as np

from psco.data.reading.decode import DecodeError, decode_image
from psco.data.reading.undecodable import check_fraction, too_many


class Files(Protocol):
    """Encoded images by their numbers: a `Listing`, or tar shards."""

    @property
    def name(self) -> str:
        """What they are together, for messages."""

    @property
    def labels(self) -> np.ndarray | None:
        """(n,) int64, or None."""

    def __len__(self) -> int: ...

    def file_name(self, number: int) -> str:
        """Name a file, for messages."""

    def content(self, number: int) -> bytes:
        """Read a file; InputError if that fails."""


class LazyImages:
    """Image files that index like an array (n, S, S, C) uint8, decoded at each access.

    Along the first axis any index of an array will do: a number, a slice, numbers in an array of
    any shape, a mask. ``np.asarray`` decodes everything.

    Parameters
    ----------
    files
        The files.
    size
        Side S of the result: the centre of an image whose short side is ``short``.
    channels
        1 for grey, 3 for RGB.
    short
        At least ``size``; by default equal to it.
    max_bad
        Share of the files, in [0, 1], that may turn out to be undecodable. In the place of such a
        file the next good one of its class is given, always the same, and a warning on stderr.
    """

    dtype = np.dtype(np.uint8)
    ndim = 4
    decodes = True  # so that training hands it to worker processes

    def __init__(
        self,
        files: Files,
        size: int,
        channels: int,
        short: int | None = None,
        max_bad: float = 0.0,
    ) -> None:
        check_fraction(max_bad)
        self.shape = (len(files), size, size, channels)
        self.files, self._short, self._max_bad = files, short or size, max_bad
        self._numbers = np.arange(len(files))
        self._bad: dict[int, list[str]] = {}  # the reason by number of the file

    def __len__(self) -> int:
        return len(self.files)

    def __getitem__(self, index: Any) -> np.ndarray:
        """Decode images; InputError if one cannot be and ``max_bad`` does not allow for it."""
        numbers = self._numbers[index]
        images = self.decode(numbers.reshape(-1), [None] * numbers.size)
        return images.reshape(*numbers.shape, *self.shape[1:])

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        if copy is False:
            raise ValueError("images that are decoded at each access cannot be given uncopied")
        return self[:].astype(dtype or self.dtype, copy=False)

    def decode(self, numbers: np.ndarray, contents: Sequence[bytes | None]) -> np.ndarray:
        """Decode the images ``numbers`` (B,), reading the files whose content is None."""
        images = np.empty((len(numbers), *self.shape[1:]), dtype=np.uint8)
        with ThreadPoolExecutor(os.cpu_count()) as pool:
            for place, image in enumerate(pool.map(self._decode, numbers.tolist(), contents)):
                images[place] = image
        return images

    def _decode(self, number: int, content: bytes | None) -> np.ndarray:
        for candidate in self._candidates(number):
            if candidate in self._bad:
                continue
            if candidate != number or content is None:
                content = self.files.content(candidate)
            try:
                image = decode_image(content, self._short, self.shape[3], name="")
            except DecodeError as error:
                self._put_up_with(candidate, error.reason)
                continue
            edge = (self._short - self.shape[1]) // 2
            return image[edge : edge + self.shape[1], edge : edge + self.shape[1]]
        raise DecodeError(self.files.file_name(number), "nor can any other image of its class be")

    def _candidates(self, number: int) -> Iterator[int]:
        """Give an image, and those that may stand in for it, the next one first."""
        yield number
        labels = self.files.labels
        alike = self._numbers if labels is None else np.flatnonzero(labels == labels[number])
        place = int(np.searchsorted(alike, number))
        yield from alike[place + 1 :].tolist()
        yield from alike[:place].tolist()

    def _put_up_with(self, number: int, why: str) -> None:
        name = self.files.file_name(number)
        if not self._max_bad:
            raise DecodeError(name, why)
        own = [why]  # an object of this call alone: only one thread finds that its own was kept
        if self._bad.setdefault(number, own) is not own:
            return  # another thread has met it at the same time, and told
        allowed = int(self._max_bad * len(self))
        if len(self._bad) > allowed:
            number, (why,) = next(iter(self._bad.items()))
            first = self.files.file_name(number), why
            # Other threads may have met more of them meanwhile; told is the one too many.
            raise too_many(allowed + 1, len(self), first, self._max_bad, self.files.name)
        print(
            f"warning: cannot decode the image {name!r}: {why}; another one of its kind takes its "
            f"place",
            file=sys.stderr,
        )
