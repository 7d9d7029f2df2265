"""The index of a tar shard: its images, their offsets and classes; nothing is unpacked.

Shards have the layout of WebDataset: members whose names agree up to the first dot belong together;
``000017.jpg`` is an image, ``000017.cls`` or ``000017.json`` contains its class. Only the headers
of the members and the few bytes with classes are read; the result is cached until the shard
changes. Members of other kinds, such as pickles, are never read.
"""

from __future__ import annotations

import hashlib
import json
import os
import tarfile
from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from typing import BinaryIO, NamedTuple

from psco.data.reading.decode import EXTENSIONS, begins_like_image
from psco.data.reading.limits import current_limits, too_large
from psco.errors import InputError, PscoError, quoted
from psco.files.atomic import atomic_path
from psco.files.cache import cache_dir

FORMAT = 2  # part of every cache key; increase it with any change to what is listed
_LABELS = (".cls", ".json")
_JSON_KEYS = ("label", "class", "cls")
_MAX_LABEL = 1 << 20  # bytes; a larger member is not a label


class ShardIndex(NamedTuple):
    """The n images of a shard, in their order in the file.

    ``names``, ``offsets``, ``sizes`` in bytes and ``labels`` (a class name or None) of each image;
    ``bad`` are members that are named like images and cannot be used, with the reason.
    """

    names: list[str]
    offsets: list[int]
    sizes: list[int]
    labels: list[str | None]
    bad: dict[str, str]


def index_shard(path: Path) -> ShardIndex:
    """List the images of a shard, from the cache if it has not changed.

    Raises
    ------
    InputError
        If it is not a tar file, or is compressed, damaged or cut short; the message has the offset.
    PscoError
        If the cache cannot be written.
    """
    cached = _cache_file(path)
    try:
        return ShardIndex(**json.loads(cached.read_text(encoding="utf-8")))
    except (OSError, ValueError, TypeError):  # absent or damaged
        index = _walk(path)
    try:
        with atomic_path(cached) as temporary:
            temporary.write_text(json.dumps(index._asdict()), encoding="utf-8")
    except OSError as error:
        raise PscoError(
            f"cannot write the index of {quoted(path)} to {quoted(cached.parent)}: "
            f"{error.strerror or error}; free some space, or set PSCO_CACHE to another folder"
        ) from None
    return index


def _cache_file(path: Path) -> Path:
    try:
        about = path.stat()
    except OSError as error:
        raise InputError(f"cannot read the shard {quoted(path)}: {error.strerror}") from None
    limit = current_limits().file_bytes
    key = json.dumps([FORMAT, str(path.resolve()), about.st_size, about.st_mtime_ns, limit])
    return cache_dir() / "shards" / f"{hashlib.sha256(key.encode()).hexdigest()[:32]}.json"


def _walk(path: Path) -> ShardIndex:
    images: list[tuple[str, int, int]] = []
    plain: set[str] = set()  # keys with an image such as a.jpg, unlike a.mask.jpg
    labels: dict[str, str] = {}
    bad: dict[str, str] = {}
    limit = current_limits().file_bytes
    try:
        with path.open("rb") as file:
            for member in _members(path, file):
                key, ending = _split(member.name)
                if ending in _LABELS and member.size <= _MAX_LABEL:
                    if (label := _label(ending, _bytes(file, member, member.size))) is not None:
                        labels.setdefault(key, label)
                elif ending.endswith(EXTENSIONS):
                    if ending in EXTENSIONS:
                        plain.add(key)
                    if member.size > limit:
                        bad[member.name] = too_large(member.size, limit)
                    elif begins_like_image(_bytes(file, member, 16)):
                        images.append((member.name, member.offset_data, member.size))
                    else:
                        bad[member.name] = "it does not begin like an image"
    except OSError as error:
        raise InputError(f"cannot read the shard {quoted(path)}: {error.strerror}") from None
    # Next to a.jpg, a.mask.png is not an image of the set; "shot at 10.15.png" alone is one.
    kept = [image for image in images if _is_own(*_split(image[0]), plain)]
    return ShardIndex(
        [name for name, _, _ in kept],
        [offset for _, offset, _ in kept],
        [size for _, _, size in kept],
        [labels.get(_split(name)[0]) for name, _, _ in kept],
        bad,
    )


def _members(path: Path, file: BinaryIO) -> Iterator[tarfile.TarInfo]:
    """Yield the regular, visible files of an archive; InputError if it is incomplete."""
    total = os.fstat(file.fileno()).st_size
    end = 0
    try:
        with tarfile.open(fileobj=file, mode="r:") as archive:
            while (member := archive.next()) is not None:
                archive.members.clear()  # type: ignore[attr-defined]  # or it grows with each one
                if member.offset_data + member.size > total:
                    raise _cut_short(
                        path, f"{quoted(member.name)} begins at", member.offset_data, total
                    )
                if archive.offset <= end:  # a forged size leads backwards
                    raise InputError(f"{quoted(path)} is damaged at offset {end}; copy it again")
                end = archive.offset
                hidden = PurePosixPath(member.name).name.startswith(".")
                if member.isreg() and not member.issparse() and not hidden:
                    yield member
            end = archive.offset
    except tarfile.TarError as error:
        raise InputError(
            f"{quoted(path)} is not a tar file, or is damaged after offset {end} ({error}); shards "
            f"must be uncompressed tar files"
        ) from None
    # tarfile takes anything that is not a header for the end; a complete archive ends with zeros.
    file.seek(end)
    block = file.read(tarfile.BLOCKSIZE)
    if len(block) < tarfile.BLOCKSIZE:
        raise _cut_short(path, "the next header begins at", end, total)
    if any(block):
        raise InputError(f"{quoted(path)} is damaged at offset {end}; copy it again")


def _cut_short(path: Path, what: str, offset: int, total: int) -> InputError:
    return InputError(
        f"{quoted(path)} is cut short: {what} offset {offset}, and the file ends at {total}; copy "
        f"it again"
    )


def _split(name: str) -> tuple[str, str]:
    """Split a name at the first dot after its folders; the ending is in lower case."""
    folder, slash, file = name.rpartition("/")
    stem, dot, ending = file.partition(".")
    return f"{folder}{slash}{stem}", f"{dot}{ending.lower()}"


def _is_own(key: str, ending: str, plain: set[str]) -> bool:
    return ending in EXTENSIONS or key not in plain


def _bytes(file: BinaryIO, member: tarfile.TarInfo, most: int) -> bytes:
    file.seek(member.offset_data)
    return file.read(min(most, member.size))


def _label(ending: str, content: bytes) -> str | None:
    try:
        if ending == ".cls":
            return content.decode("utf-8").strip() or None
        fields = json.loads(content)
    except (ValueError, RecursionError):
        return None
    if not isinstance(fields, dict):
        return None
    found = next((fields[key] for key in _JSON_KEYS if key in fields), None)
    return str(found) if isinstance(found, (str, int)) else None
