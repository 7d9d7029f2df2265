"""Tar shards in the layout of WebDataset: images in a few large files, read in place.

Only the position of each image is kept in memory, about thirty bytes per image.
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

import numpy as np

from psco.data.imageset import ImageSet
from psco.data.reading.decode import EXTENSIONS, Size, sides
from psco.data.reading.lazy import LazyImages
from psco.data.reading.listing import Listing
from psco.data.reading.shardpaths import find_shards
from psco.data.reading.tarindex import ShardIndex, index_shard
from psco.data.reading.undecodable import (
    MAX_BAD,
    check_fraction,
    exceeds_limit,
    too_many,
    warn_skipped,
)
from psco.data.reading.walk import Scan
from psco.errors import InputError, quoted
from psco.progress import Bar

_INDEX_THREADS = 8  # they wait for the disk most of the time
_READ_BUFFER = 1 << 20  # bytes, where a shard is read from end to end


@dataclass(frozen=True)
class Shards:
    """The images of tar files, numbered in the order of files and members.

    Parameters
    ----------
    paths
        The S tar files.
    first
        (S + 1,) int64, the index of the first image of each file, then the number of images.
    offsets, sizes
        (n,) int64, position of each image in its tar file and its length, in bytes.
    labels, classes
        As in `ImageSet`.
    name
        Name of the data set.
    """

    paths: tuple[Path, ...]
    first: np.ndarray
    offsets: np.ndarray
    sizes: np.ndarray
    labels: np.ndarray | None = None
    classes: tuple[str, ...] = ()
    name: str = "shards"

    def __len__(self) -> int:
        return len(self.offsets)

    def shard_of(self, number: int) -> int:
        """Return the index of the tar file that contains an image."""
        return int(np.searchsorted(self.first, number, side="right")) - 1

    def file_name(self, number: int) -> str:
        """Return the shard, member name and offset of an image, for messages."""
        shard = self.shard_of(number)
        member = index_shard(self.paths[shard]).names[number - int(self.first[shard])]
        return f"{self.paths[shard]}: {member} at offset {self.offsets[number]}"

    def content(self, number: int) -> bytes:
        """Read an image; InputError if that fails."""
        path = self.paths[self.shard_of(number)]
        with _reading(path), path.open("rb") as file:
            return self._read(file, number)

    def read_through(self, numbers: Iterable[int]) -> Iterator[bytes]:
        """Yield the content of images; those that follow one another are read in large blocks.

        Raises
        ------
        InputError
            If a shard has disappeared or become shorter.
        """
        for shard, group in itertools.groupby(numbers, self.shard_of):
            path = self.paths[shard]
            with _reading(path), path.open("rb", buffering=_READ_BUFFER) as file:
                for number in group:
                    yield self._read(file, number)

    def _read(self, file: BinaryIO, number: int) -> bytes:
        offset, size = int(self.offsets[number]), int(self.sizes[number])
        file.seek(offset)
        content = file.read(size)
        if len(content) < size:
            raise InputError(
                f"{quoted(file.name)} has become shorter: {size} bytes were at offset {offset}; "
                f"do not change shards while they are in use"
            )
        return content


@contextmanager
def _reading(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise InputError(f"cannot read the shard {quoted(path)}: {error.strerror}") from None


def load_shards(
    source: str | os.PathLike[str],
    size: Size,
    channels: int,
    *,
    max_bad: float = MAX_BAD,
    progress: bool = True,
) -> ImageSet:
    """Load the images of tar shards, decoded at each access.

    Parameters
    ----------
    source
        See `find_shards`.
    size, channels
        Side and channels of every image; see `decode_image`.
    max_bad
        Fraction of the images, in [0, 1], that may be undecodable. Members that do not begin like
        an image are left out; images that fail to decode later are replaced, see `LazyImages`.
    progress
        Show a progress bar on stderr while the shards are indexed for the first time.

    Raises
    ------
    InputError
        If there are no such shards, one is damaged, or too many members are not images.
    """
    check_fraction(max_bad)
    if min(sides(size)) < 1:
        raise InputError(f"size must be at least 1, not {size}")
    shards = open_shards(source, max_bad=max_bad, progress=progress)
    images = LazyImages(shards, size, channels, max_bad=max_bad)
    return ImageSet(images, shards.labels, shards.classes, shards.name)


def open_shards(
    source: str | os.PathLike[str], *, max_bad: float = MAX_BAD, progress: bool = True
) -> Shards:
    """List the images of shards; parameters and errors are those of `load_shards`.

    The result has labels if every image has one.
    """
    paths = find_shards(source)
    first, bad = [0], {}
    offsets, sizes, numbers = [], [], []
    known: dict[str | None, int] = {}
    for path, index in zip(paths, _indexes(paths, progress), strict=True):
        first.append(first[-1] + len(index.names))
        offsets.append(np.array(index.offsets, dtype=np.int64))
        sizes.append(np.array(index.sizes, dtype=np.int64))
        labels = [known.setdefault(label, len(known)) for label in index.labels]
        numbers.append(np.array(labels, dtype=np.int64))
        bad.update({f"{path}: {name}": why for name, why in index.bad.items()})
    total = first[-1] + len(bad)
    if not total:
        raise InputError(
            f"no images in {quoted(source)}; looked for members with the extensions "
            f"{' '.join(EXTENSIONS)}"
        )
    if exceeds_limit(len(bad), total, max_bad):
        raise too_many(len(bad), total, next(iter(bad.items())), max_bad, os.fspath(source))
    warn_skipped(bad, total)
    parts = tuple(paths), np.array(first), np.concatenate(offsets), np.concatenate(sizes)
    name = Path(source).name.removesuffix(".tar")
    if None in known:
        return Shards(*parts, name=name)
    texts = [text for text in known if text is not None]
    classes = sorted(texts, key=int if all(text.isdecimal() for text in texts) else str)
    place = {text: index for index, text in enumerate(classes)}
    renumbered = np.array([place[text] for text in texts], dtype=np.int64)
    return Shards(*parts, renumbered[np.concatenate(numbers)], tuple(classes), name)


class _Members:
    """The images of shards as a source of files, by shard, member name and offset."""

    def __init__(self, shards: Shards) -> None:
        self.path = shards.paths[0]
        self._shards = shards
        self._numbers = {shards.file_name(number): number for number in range(len(shards))}

    def scan(self) -> Scan:
        """Return the names; nothing else is in shards that psco would report."""
        return Scan(self.names(), {})

    def names(self) -> list[str]:
        """Return the names of all images."""
        return list(self._numbers)

    def read(self, name: str) -> bytes:
        """Read an image; InputError if that fails."""
        return self._shards.content(self._numbers[name])

    def stamp(self) -> str:
        """Return a text that changes when a shard does."""
        stats = [path.stat() for path in self._shards.paths]
        return ",".join(f"{stat.st_size}-{stat.st_mtime_ns}" for stat in stats)


def list_shards(source: str | os.PathLike[str], *, progress: bool = True) -> Listing:
    """List the images of shards as files, such as to check them one by one.

    Members that do not begin like an image are left out, with a warning.

    Raises
    ------
    InputError
        If there are no such shards, or one is damaged.
    """
    shards = open_shards(source, max_bad=1.0, progress=progress)
    members = _Members(shards)
    return Listing(members, tuple(members.names()), shards.labels, shards.classes, shards.name)


def _indexes(paths: list[Path], progress: bool) -> Iterator[ShardIndex]:
    with ThreadPoolExecutor(_INDEX_THREADS) as pool, Bar("index shards", progress) as bar:
        try:
            for number, index in enumerate(pool.map(index_shard, paths), start=1):
                yield index
                bar.update(number / len(paths))
        finally:
            pool.shutdown(cancel_futures=True)  # after an error the other shards are not needed
