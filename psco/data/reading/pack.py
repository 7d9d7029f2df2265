"""Image files decoded once into an array on disk, which later calls memory-map.

``<cache>/packed/<key>.npy`` holds the images, ``<key>.json`` the files that were skipped and why.
The key is a hash of the files' names, sizes and times, of the image size and of the decoder, so any
change leads to another key. The ``.npy`` is renamed last: if it exists, both are complete.
"""

from __future__ import annotations

import hashlib
import json
import shutil
import time
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO

import numpy as np
from numpy.lib import format as npy

from psco.data.imageset import ImageSet
from psco.data.reading.decode import Size, available_formats, decode_image, sides
from psco.data.reading.limits import current_limits
from psco.data.reading.listing import Listing
from psco.data.reading.pool import each_file
from psco.data.reading.undecodable import (
    MAX_BAD,
    check_fraction,
    raise_if_too_many,
    reason,
    warn_skipped,
)
from psco.errors import InputError, PscoError, quoted
from psco.files.atomic import atomic_path
from psco.files.cache import cache_dir
from psco.files.lock import file_lock

FORMAT = 1  # part of every key; increase it with any change to how images are decoded or stored
_ABANDONED = 3600.0  # seconds without a write after which a writer must be dead


@dataclass(frozen=True)
class PackedSet(ImageSet):
    """Images decoded from files.

    Parameters
    ----------
    files
        The file of each image.
    bad_files
        The files that were skipped, and why.
    """

    files: tuple[str, ...] = ()
    bad_files: dict[str, str] = field(default_factory=dict)


def pack(
    listing: Listing,
    size: Size,
    channels: int,
    *,
    max_bad: float = MAX_BAD,
    progress: bool = True,
) -> PackedSet:
    """Decode the files of a listing, or open the result of an earlier call.

    Parameters
    ----------
    listing
        The files, with labels if there are any; the result keeps their order.
    size, channels
        Side (or height and width) and channels of the result; see `decode_image`.
    max_bad
        Fraction of the files, in [0, 1], that may be undecodable; they are skipped with a warning.
    progress
        Show a progress bar on stderr.

    Returns
    -------
    PackedSet
        Images (n, height, width, channels), memory-mapped copy-on-write.

    Raises
    ------
    InputError
        If there are no files, or too many of them are undecodable.
    PscoError
        If the cache cannot be written, for example on a full disk.
    """
    check_fraction(max_bad)
    if not listing.files:
        raise InputError(f"{quoted(listing.name)} has no images")
    file = _cache_file(listing, size, channels)
    found = _open(file)
    if found is None:
        try:
            with file_lock(file.with_suffix(".lock")):  # another process may pack the same images
                found = _open(file)
                if found is None:
                    _write(file, listing, size, channels, max_bad, progress)
                    found = _open(file)
        except OSError as error:
            raise PscoError(
                f"cannot write packed images to {quoted(file.parent)}: {error.strerror or error}; "
                f"free some space there, or set PSCO_CACHE to a folder on another disk"
            ) from None
    if found is None:
        raise PscoError(f"{quoted(file)} was just written and cannot be read; check the disk")
    images, bad = found
    # Checked again, since max_bad may have been larger when the images were packed.
    raise_if_too_many(bad, listing.files, max_bad, str(listing.source.path))
    warn_skipped(bad, len(listing))
    kept = np.array([name not in bad for name in listing.files])
    return PackedSet(
        images,
        None if listing.labels is None else listing.labels[kept],
        listing.classes,
        listing.name,
        listing.split,
        files=tuple(name for name in listing.files if name not in bad),
        bad_files=bad,
    )


def _cache_file(listing: Listing, size: Size, channels: int) -> Path:
    try:
        stamp = listing.source.stamp()
    except (OSError, ValueError) as error:
        raise InputError(f"cannot list {quoted(listing.source.path)}: {error}") from None
    limits = current_limits()
    decoder = [available_formats(), limits.pixels, limits.file_bytes]
    key = json.dumps([FORMAT, stamp, listing.files, size, channels, decoder])
    return cache_dir() / "packed" / f"{hashlib.sha256(key.encode()).hexdigest()[:32]}.npy"


def _open(file: Path) -> tuple[np.ndarray, dict[str, str]] | None:
    """Open packed images, with the reasons for skipped files; None if absent or damaged."""
    try:
        bad: dict[str, str] = json.loads(file.with_suffix(".json").read_text())["bad"]
        # Copy-on-write, since torch warns about read-only arrays.
        images: np.ndarray = np.load(file, mmap_mode="c")
    except (OSError, ValueError, KeyError, EOFError):
        return None
    return images, bad


def _write(
    file: Path, listing: Listing, size: Size, channels: int, max_bad: float, progress: bool
) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    for half in file.parent.glob(f".{file.stem}.*.part*"):  # of a killed process: the lock is ours
        half.unlink(missing_ok=True)
    _remove_abandoned(file.parent)
    height, width = sides(size)
    _check_space(file.parent, len(listing) * height * width * channels)
    results = each_file(
        listing.source,
        listing.files,
        lambda content, name: decode_image(content, size, channels, name=name),
        title="pack images",
        progress=progress,
    )
    bad = {}
    kept = 0
    with closing(results), atomic_path(file) as temporary:
        # Plain writes, not a memory map: on a full disk they raise, a map kills the process.
        with temporary.open("wb") as out:
            _write_header(out, (len(listing), height, width, channels))
            for name, result in zip(listing.files, results, strict=True):
                if isinstance(result, InputError):
                    bad[name] = reason(result)
                else:
                    out.write(result.data)
                    kept += 1
            out.seek(0)
            _write_header(out, (kept, height, width, channels))
        raise_if_too_many(bad, listing.files, max_bad, str(listing.source.path))
        with atomic_path(file.with_suffix(".json")) as notes:
            notes.write_text(json.dumps({"source": str(listing.source.path), "bad": bad}))


def _write_header(out: BinaryIO, shape: tuple[int, ...]) -> None:
    # numpy pads headers, so their length does not depend on the number of rows.
    npy.write_array_header_1_0(out, {"descr": "|u1", "fortran_order": False, "shape": shape})


def _check_space(folder: Path, needed: int) -> None:
    free = shutil.disk_usage(folder).free
    if free < needed:
        raise OSError(f"{needed / 1e6:.0f} MB are needed, {free / 1e6:.0f} MB are free")


def _remove_abandoned(folder: Path) -> None:
    # Other processes may be writing here; a writer that is alive writes all the time.
    for temporary in folder.glob(".*.part*"):
        try:
            if time.time() - temporary.stat().st_mtime > _ABANDONED:
                temporary.unlink()
        except OSError:  # another process removed it first
            continue
