"""Images that are decoded at every access, since they would not fit into memory."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Protocol

import numpy as np

from psco.data.reading.decode import DecodeError, Size, decode_image, sides
from psco.data.reading.undecodable import check_fraction, too_many
from psco.errors import InputError, quoted
from psco.progress import warn


class Files(Protocol):
    """Encoded images by their indices: a `Listing`, or tar shards."""

    @property
    def name(self) -> str:
        """Name of the data set, for messages."""

    @property
    def labels(self) -> np.ndarray | None:
        """(n,) int64, or None."""

    @property
    def classes(self) -> tuple[str, ...]:
        """Class names; empty without labels."""

    def __len__(self) -> int: ...

    def file_name(self, number: int) -> str:
        """Return the name of a file, for messages."""

    def content(self, number: int) -> bytes:
        """Read a file; InputError if that fails."""


class LazyImages:
    """Image files indexed like an array (n, H, W, C) uint8, decoded at each access.

    The first axis takes any index of an array: an integer, a slice, an integer array of any shape,
    a mask. ``np.asarray`` decodes everything.

    Parameters
    ----------
    files
        The files.
    size
        Side of the result, or its height and width; see `decode_image`.
    channels
        1 for grey, 3 for RGB.
    max_bad
        Fraction of the files, in [0, 1], that may be undecodable. Such a file is replaced by the
        next good one of its class, always the same, and a warning is printed.
    """

    dtype = np.dtype(np.uint8)
    ndim = 4
    decodes = True  # training then uses worker processes

    def __init__(
        self,
        files: Files,
        size: Size,
        channels: int,
        max_bad: float = 0.0,
    ) -> None:
        check_fraction(max_bad)
        self.shape: tuple[int, int, int, int] = (len(files), *sides(size), channels)
        self.files = files
        self._max_bad = max_bad
        self._numbers = np.arange(len(files))
        self._bad: dict[int, list[str]] = {}  # the reason, by index of the file

    def __len__(self) -> int:
        return len(self.files)

    def __getitem__(self, index: Any) -> np.ndarray:
        """Decode images; InputError if one is undecodable and ``max_bad`` does not allow it."""
        numbers = self._numbers[index]
        images = self.decode(numbers.reshape(-1), [None] * numbers.size)
        return images.reshape(*numbers.shape, *self.shape[1:])

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        if copy is False:
            raise ValueError("images decoded at each access cannot be returned without a copy")
        return self[:].astype(dtype or self.dtype, copy=False)

    def decode(self, numbers: np.ndarray, contents: Sequence[bytes | None]) -> np.ndarray:
        """Decode the images with indices ``numbers`` (B,); files whose content is None are read."""
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
                return decode_image(content, self.shape[1:3], self.shape[3], name="")
            except DecodeError as error:
                self._record_bad(candidate, error.reason)
        raise self._no_good_image(number)

    def _candidates(self, number: int) -> Iterator[int]:
        """Yield an image and those that may replace it, in order of preference."""
        yield number
        labels = self.files.labels
        same_class = self._numbers if labels is None else np.flatnonzero(labels == labels[number])
        place = int(np.searchsorted(same_class, number))
        yield from same_class[place + 1 :].tolist()
        yield from same_class[:place].tolist()

    def _record_bad(self, number: int, why: str) -> None:
        name = self.files.file_name(number)
        if not self._max_bad:
            raise DecodeError(name, why)
        own = [why]  # a new object: only the thread whose object was kept goes on
        if self._bad.setdefault(number, own) is not own:
            return
        allowed = int(self._max_bad * len(self))
        if len(self._bad) > allowed:
            number, (why,) = next(iter(self._bad.items()))
            first = self.files.file_name(number), why
            # Other threads may have found more of them by now; the message counts one too many.
            raise too_many(allowed + 1, len(self), first, self._max_bad, self.files.name)
        warn(f"cannot decode the image {quoted(name)}: {why}; another one of its class replaces it")

    def _no_good_image(self, number: int) -> InputError:
        labels = self.files.labels
        of_class = (
            "" if labels is None else f" of class {quoted(self.files.classes[labels[number]])}"
        )
        name, (why,) = self.files.file_name(number), self._bad[number]
        return InputError(
            f"no image{of_class} in {quoted(self.files.name)} can be decoded; one of them is "
            f"{quoted(name)}: {why}; repair or remove them"
        )
