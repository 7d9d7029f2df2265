"""Tar shards in the layout of WebDataset: images in a few large files, read in place.

They are found by a pattern such as ``train-{000000..000146}.tar``, a glob, or as a folder of them.
What is kept in memory is where each image begins: some thirty bytes for each.
"""

from __future__ import annotations

import glob
import itertools
import os
import re
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

import numpy as np

from psco.data.imageset import ImageSet
from psco.data.reading.lazy import LazyImages
from psco.data.reading.listing import EXTENSIONS
from psco.data.reading.tarindex import ShardIndex, index_shard
from psco.data.reading.undecodable import MAX_BAD, check_fraction, exceeds_limit, too_many, warn
from psco.errors import InputError
from psco.progress import Bar

_COMPRESSED = (".tar.gz", ".tgz", ".tar.bz2", ".tar.xz", ".tar.zst")
_BRACES = re.compile(r"\{([^{}]*)\}")
_RANGE = re.compile(r"(\d+)\.\.(\d+)")
_MOST_SHARDS = 1_000_000
_READERS = 8  # threads that index shards: they wait for the disk most of the time
_AT_ONCE = 1 << 20  # bytes asked for at a time where a shard is read from end to end


@dataclass(frozen=True)
class Shards:
    """The images of tar files, numbered through in the order of files and members.

    Parameters
    ----------
    paths
        The S tar files.
    first
        (S + 1,) int64, the number of the first image of each, and of all.
    offsets, sizes
        (n,) int64, where in its tar file the content of an image begins, and its length in bytes.
    labels, classes
        As of `ImageSet`.
    name
        For reports.
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
        """Tell in which tar file an image is."""
        return int(np.searchsorted(self.first, number, side="right")) - 1

    def file_name(self, number: int) -> str:
        """Name an image by its shard, the name of its member and the offset."""
        shard = self.shard_of(number)
        member = index_shard(self.paths[shard]).names[number - int(self.first[shard])]
        return f"{self.paths[shard]}: {member} at offset {self.offsets[number]}"

    def content(self, number: int) -> bytes:
        """Read an image, wherever it is; InputError if that fails."""
        path = self.paths[self.shard_of(number)]
        with _reading(path), path.open("rb") as file:
            return self._read(file, number)

    def read_through(self, numbers: Iterable[int]) -> Iterator[bytes]:
        """Read images one after the other, as large pieces of shards that are opened once.

        Raises
        ------
        InputError
            If a shard has gone or become shorter.
        """
        for shard, group in itertools.groupby(numbers, self.shard_of):
            path = self.paths[shard]
            with _reading(path), path.open("rb", buffering=_AT_ONCE) as file:
                for number in group:
                    yield self._read(file, number)

    def _read(self, file: BinaryIO, number: int) -> bytes:
        offset, size = int(self.offsets[number]), int(self.sizes[number])
        file.seek(offset)
        content = file.read(size)
        if len(content) < size:
            raise InputError(
                f"{file.name!r} has become shorter: {size} bytes were at offset {offset}; start "
                f"again with shards that stay as they are"
            )
        return content


@contextmanager
def _reading(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise InputError(f"cannot read the shard {str(path)!r}: {error.strerror}") from None


def are_shards(source: str | os.PathLike[str]) -> bool:
    """Say whether this names tar files: by its ending, or as a folder of them and nothing else."""
    if not Path(source).is_dir():
        return os.fspath(source).lower().endswith((".tar", *_COMPRESSED))
    found = False
    with os.scandir(source) as entries:
        for entry in entries:
            name = entry.name.lower()
            if not name.startswith(".") and (entry.is_dir() or name.endswith(EXTENSIONS)):
                return False
            found = found or _is_tar(entry.name)
    return found


def load_shards(
    source: str | os.PathLike[str],
    size: int,
    channels: int,
    *,
    max_bad: float = MAX_BAD,
    progress: bool = True,
) -> ImageSet:
    """Give the images of tar shards, decoded at each access.

    Parameters
    ----------
    source
        See `find_shards`.
    size, channels
        Of every image; see `decode_image`.
    max_bad
        Share of the images, in [0, 1], that may be undecodable. Members that are no images at all
        are left out; what turns out to be damaged later is replaced, see `LazyImages`.
    progress
        Show a progress bar on stderr while the shards are indexed for the first time.

    Raises
    ------
    InputError
        If there are no such shards, one is damaged, or too many members are no images.
    """
    check_fraction(max_bad)
    if size < 1:
        raise InputError(f"size must be at least 1, not {size}")
    shards = open_shards(source, max_bad=max_bad, progress=progress)
    images = LazyImages(shards, size, channels, max_bad=max_bad)
    return ImageSet(images, shards.labels, shards.classes, shards.name)


def open_shards(
    source: str | os.PathLike[str], *, max_bad: float = MAX_BAD, progress: bool = True
) -> Shards:
    """List the images of shards; parameters and errors as of `load_shards`.

    There are labels if every image has one.
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
            f"no images in {os.fspath(source)!r}; looked for members ending in "
            f"{' '.join(EXTENSIONS)}"
        )
    if exceeds_limit(len(bad), total, max_bad):
        raise too_many(len(bad), total, next(iter(bad.items())), max_bad, os.fspath(source))
    warn(bad, total)
    parts = tuple(paths), np.array(first), np.concatenate(offsets), np.concatenate(sizes)
    name = Path(source).name.removesuffix(".tar")
    if None in known:
        return Shards(*parts, name=name)
    texts = [text for text in known if text is not None]
    classes = sorted(texts, key=int if all(text.isdecimal() for text in texts) else str)
    place = {text: index for index, text in enumerate(classes)}
    renumbered = np.array([place[text] for text in texts], dtype=np.int64)
    return Shards(*parts, renumbered[np.concatenate(numbers)], tuple(classes), name)


def _indexes(paths: list[Path], progress: bool) -> Iterator[ShardIndex]:
    with ThreadPoolExecutor(_READERS) as pool, Bar("index shards", progress) as bar:
        try:
            for number, index in enumerate(pool.map(index_shard, paths), start=1):
                yield index
                bar.update(number / len(paths))
        finally:
            pool.shutdown(cancel_futures=True)  # after an error the other shards do not matter


def find_shards(source: str | os.PathLike[str]) -> list[Path]:
    """Find tar files.

    Parameters
    ----------
    source
        A tar file; a folder of them; a glob; or a pattern with braces, ``{000000..000146}`` or
        ``{train,val}``, all of whose files must exist.

    Raises
    ------
    InputError
        If there are none, some of a pattern are missing, or they are compressed or no files.
    """
    text = os.fspath(source)
    if re.match(r"\w\w+:", text):
        raise InputError(
            f"{text!r} is no file; shards are read from files, nothing is run or downloaded for "
            f"them: copy them, or mount the place"
        )
    if text.lower().endswith(_COMPRESSED):
        raise InputError(f"{text!r} is compressed; shards are plain .tar files, unpack it to one")
    if Path(text).is_file():
        return [Path(text)]
    if Path(text).is_dir():
        return sorted(path for path in Path(text).iterdir() if _is_tar(path.name))
    patterns = _expand(text)
    found: list[Path] = []
    missing = []
    for pattern in patterns:
        if any(letter in pattern for letter in "*?["):
            found += map(Path, sorted(glob.glob(pattern)))  # noqa: PTH207
        elif Path(pattern).is_file():
            found.append(Path(pattern))
        else:
            missing.append(pattern)
    if missing and len(patterns) > 1:
        more = f" and {len(missing) - 1} more" if len(missing) > 1 else ""
        raise InputError(
            f"{text!r} names {len(patterns)} shards, and {missing[0]!r}{more} do not exist"
        )
    if not found:
        raise InputError(
            f"no shards match {text!r}; give a .tar file, a folder of them, or a pattern such as "
            f"'data-{{000000..000123}}.tar' in quotes"
        )
    return list(dict.fromkeys(found))


def _is_tar(name: str) -> bool:
    return name.endswith(".tar") and not name.startswith(".")


def _expand(pattern: str) -> list[str]:
    """Expand braces as a shell does: ranges of numbers with leading zeros, and alternatives."""
    match = _BRACES.search(pattern)
    if match is None:
        return [pattern]
    before, after = pattern[: match.start()], _expand(pattern[match.end() :])
    bounds = _RANGE.fullmatch(match[1])
    if bounds is None:
        words = match[1].split(",")
    else:
        low, high, width = int(bounds[1]), int(bounds[2]), len(bounds[1])
        if low > high:
            raise InputError(f"the range {match[0]} in {pattern!r} goes backwards")
        if (high - low + 1) * len(after) > _MOST_SHARDS:
            raise InputError(f"{pattern!r} names more than {_MOST_SHARDS:,} shards")
        words = [f"{number:0{width}}" for number in range(low, high + 1)]
    return [f"{before}{word}{rest}" for word in words for rest in after]
