"""Image files, decoded once into one array on disk that opens at once ever after.

``<cache>/packed/<key>.npy`` holds the images and ``<key>.json`` which files were skipped and why.
The key stands for the files as they are now and for the size asked for: whatever changes, another
key is the result. The ``.npy`` gets its name last, so that where it exists all is complete.
"""

from __future__ import annotations

import hashlib
import json
import shutil
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO

import numpy as np
from numpy.lib import format as npy

from psco.data.imageset import ImageSet
from psco.data.reading.decode import decode_image
from psco.data.reading.listing import Listing
from psco.data.reading.pool import each_file
from psco.data.reading.undecodable import MAX_BAD, check_fraction, raise_if_too_many, reason, warn
from psco.errors import InputError, PscoError
from psco.files.atomic import atomic_path
from psco.files.cache import cache_dir

FORMAT = 1  # part of every key: raise it with any change to how images are decoded or stored
_ABANDONED = 3600.0  # seconds since the last write after which a writer must be dead


@dataclass(frozen=True)
class PackedSet(ImageSet):
    """Images that come from files.

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
    size: int,
    channels: int,
    *,
    max_bad: float = MAX_BAD,
    progress: bool = True,
) -> PackedSet:
    """Decode the files of a listing, or open what an earlier call has decoded.

    Parameters
    ----------
    listing
        The files, and their labels if there are any; the result keeps their order.
    size, channels
        Of every image of the result; see `decode_image`.
    max_bad
        Share of the files, in [0, 1], that may be undecodable: these are skipped with a warning.
    progress
        Show a progress bar on stderr.

    Returns
    -------
    PackedSet
        Images (n, size, size, channels), memory-mapped; what is written to them stays in memory.

    Raises
    ------
    InputError
        If there are no files, or too many of them are undecodable.
    PscoError
        If the cache cannot be written, as on a full disk.
    """
    check_fraction(max_bad)
    if not listing.files:
        raise InputError(f"{listing.name!r} has no images")
    file = _cache_file(listing, size, channels)
    found = _open(file)
    if found is None:
        try:
            _write(file, listing, size, channels, max_bad, progress)
            found = _open(file)
        except OSError as error:
            raise PscoError(
                f"cannot write packed images to {str(file.parent)!r}: {error.strerror or error}; "
                f"make room there, or set PSCO_CACHE to a folder on another disk"
            ) from None
    if found is None:
        raise PscoError(f"{str(file)!r} was just written and cannot be read; is the disk failing?")
    images, bad = found
    # Asked again, since more may have been allowed when these were packed.
    raise_if_too_many(bad, listing.files, max_bad, str(listing.source.path))
    warn(bad, len(listing))
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


def _cache_file(listing: Listing, size: int, channels: int) -> Path:
    try:
        stamp = listing.source.stamp()
    except (OSError, ValueError) as error:
        raise InputError(f"cannot list {str(listing.source.path)!r}: {error}") from None
    facts = json.dumps([FORMAT, stamp, listing.files, size, channels])
    return cache_dir() / "packed" / f"{hashlib.sha256(facts.encode()).hexdigest()[:32]}.npy"


def _open(file: Path) -> tuple[np.ndarray, dict[str, str]] | None:
    """Open packed images and the reasons for what was skipped; None if not there, or damaged."""
    try:
        bad: dict[str, str] = json.loads(file.with_suffix(".json").read_text())["bad"]
        # Copy on write: torch warns about arrays that cannot be written to.
        images: np.ndarray = np.load(file, mmap_mode="c")
    except (OSError, ValueError, KeyError, EOFError):
        return None
    return images, bad


def _write(
    file: Path, listing: Listing, size: int, channels: int, max_bad: float, progress: bool
) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    _remove_abandoned(file.parent)
    _expect_room(file.parent, len(listing) * size * size * channels)
    results = each_file(
        listing.source,
        listing.files,
        lambda content, name: decode_image(content, size, channels, name=name),
        title="pack images",
        progress=progress,
    )
    bad = {}
    kept = 0
    with atomic_path(file) as aside:
        # Plain writes, not a memory map: on a full disk these raise, while a map kills the process.
        with aside.open("wb") as out:
            _write_header(out, (len(listing), size, size, channels))
            for name, result in zip(listing.files, results, strict=True):
                if isinstance(result, InputError):
                    bad[name] = reason(result)
                else:
                    out.write(result.data)
                    kept += 1
            out.seek(0)
            _write_header(out, (kept, size, size, channels))
        raise_if_too_many(bad, listing.files, max_bad, str(listing.source.path))
        with atomic_path(file.with_suffix(".json")) as notes:
            notes.write_text(json.dumps({"source": str(listing.source.path), "bad": bad}))


def _write_header(out: BinaryIO, shape: tuple[int, ...]) -> None:
    # numpy pads headers so that they keep their length when the number of rows changes.
    npy.write_array_header_1_0(out, {"descr": "|u1", "fortran_order": False, "shape": shape})


def _expect_room(folder: Path, needed: int) -> None:
    free = shutil.disk_usage(folder).free
    if free < needed:
        raise OSError(f"{needed / 1e6:.0f} MB are needed and {free / 1e6:.0f} MB are free")


def _remove_abandoned(folder: Path) -> None:
    # Others may be writing here at this moment, and a writer that lives writes all the time.
    for aside in folder.glob(".*.part*"):
        try:
            if time.time() - aside.stat().st_mtime > _ABANDONED:
                aside.unlink()
        except OSError:  # another process was quicker
            continue
