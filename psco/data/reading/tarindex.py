"""What is in a tar shard: its images, where they begin, and their classes, without unpacking it.

Shards follow the layout of WebDataset: members with the same name up to its first dot belong
together, ``000017.jpg`` is an image, ``000017.cls`` or ``000017.json`` says its class. Only the
headers of the members are read, and the few bytes that hold classes; the result is cached until
the shard changes. Members of other kinds, pickles among them, are never looked into.
"""

from __future__ import annotations

import hashlib
import json
import os
import tarfile
from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from typing import BinaryIO, NamedTuple

from psco.data.reading.decode import begins_like_image
from psco.data.reading.listing import EXTENSIONS
from psco.errors import InputError, PscoError
from psco.files.atomic import atomic_path
from psco.files.cache import cache_dir

FORMAT = 1  # part of every key of the cache: raise it with any change to what is listed
_LABELS = (".cls", ".json")
_JSON_KEYS = ("label", "class", "cls")
_MOST_LABEL = 1 << 20  # bytes; what is larger is no label


class ShardIndex(NamedTuple):
    """The images of one shard, in its order.

    ``names``, ``offsets`` and ``sizes`` of n images in the file, the class of each as text or None,
    and the members named like images that are none, with the reason.
    """

    names: list[str]
    offsets: list[int]
    sizes: list[int]
    labels: list[str | None]
    bad: dict[str, str]


def index_shard(path: Path) -> ShardIndex:
    """List the images of a shard, from the cache if it has not changed since.

    Raises
    ------
    InputError
        If it is no tar file, is compressed, damaged or cut short; the message says at which offset.
    PscoError
        If the cache cannot be written.
    """
    cached = _cache_file(path)
    try:
        return ShardIndex(**json.loads(cached.read_text(encoding="utf-8")))
    except (OSError, ValueError, TypeError):  # not there, or damaged
        index = _walk(path)
    try:
        with atomic_path(cached) as aside:
            aside.write_text(json.dumps(index._asdict()), encoding="utf-8")
    except OSError as error:
        raise PscoError(
            f"cannot write the index of {str(path)!r} to {str(cached.parent)!r}: "
            f"{error.strerror or error}; make room there, or set PSCO_CACHE to another folder"
        ) from None
    return index


def _cache_file(path: Path) -> Path:
    try:
        about = path.stat()
    except OSError as error:
        raise InputError(f"cannot read the shard {str(path)!r}: {error.strerror}") from None
    facts = json.dumps([FORMAT, str(path.resolve()), about.st_size, about.st_mtime_ns])
    return cache_dir() / "shards" / f"{hashlib.sha256(facts.encode()).hexdigest()[:32]}.json"


def _walk(path: Path) -> ShardIndex:
    images: list[tuple[str, int, int]] = []
    plain: set[str] = set()  # keys with an image that has no further part in its name
    labels: dict[str, str] = {}
    bad: dict[str, str] = {}
    try:
        with path.open("rb") as file:
            for member in _members(path, file):
                key, ending = _split(member.name)
                if ending in _LABELS and member.size <= _MOST_LABEL:
                    if (label := _label(ending, _bytes(file, member, member.size))) is not None:
                        labels.setdefault(key, label)
                elif ending.endswith(EXTENSIONS):
                    if ending in EXTENSIONS:
                        plain.add(key)
                    if begins_like_image(_bytes(file, member, 16)):
                        images.append((member.name, member.offset_data, member.size))
                    else:
                        bad[member.name] = "it does not begin like an image"
    except OSError as error:
        raise InputError(f"cannot read the shard {str(path)!r}: {error.strerror}") from None
    # Of a.jpg and a.mask.png only the first is an image of its own; "shot at 10.15.png" is one.
    kept = [image for image in images if _is_own(*_split(image[0]), plain)]
    return ShardIndex(
        [name for name, _, _ in kept],
        [offset for _, offset, _ in kept],
        [size for _, _, size in kept],
        [labels.get(_split(name)[0]) for name, _, _ in kept],
        bad,
    )


def _members(path: Path, file: BinaryIO) -> Iterator[tarfile.TarInfo]:
    """Give the plain, visible files of an archive; InputError where it is not whole."""
    total = os.fstat(file.fileno()).st_size
    end = 0
    try:
        with tarfile.open(fileobj=file, mode="r:") as archive:
            while (member := archive.next()) is not None:
                archive.members.clear()  # type: ignore[attr-defined]  # it grows with each one
                if member.offset_data + member.size > total:
                    raise _cut_short(path, f"{member.name!r} begins at", member.offset_data, total)
                if archive.offset <= end:  # a forged size leads backwards
                    raise InputError(f"{str(path)!r} is damaged at offset {end}; make it again")
                end = archive.offset
                hidden = PurePosixPath(member.name).name.startswith(".")
                if member.isreg() and not member.issparse() and not hidden:
                    yield member
            end = archive.offset
    except tarfile.TarError as error:
        raise InputError(
            f"{str(path)!r} is no tar file, or damaged after offset {end} ({error}); shards are "
            f"plain tar files that are not compressed"
        ) from None
    # tarfile takes whatever is no header for the end, but a whole archive ends with empty blocks.
    file.seek(end)
    block = file.read(tarfile.BLOCKSIZE)
    if len(block) < tarfile.BLOCKSIZE:
        raise _cut_short(path, "the next header begins at", end, total)
    if any(block):
        raise InputError(f"{str(path)!r} is damaged at offset {end}; copy it again")


def _cut_short(path: Path, what: str, offset: int, total: int) -> InputError:
    return InputError(
        f"{str(path)!r} is cut short: {what} offset {offset}, and the file ends at {total}; copy "
        f"it again from where it is whole"
    )


def _split(name: str) -> tuple[str, str]:
    """Split a name before the first dot after its folders; the ending is in lower case."""
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
        facts = json.loads(content)
    except (ValueError, RecursionError):
        return None
    if not isinstance(facts, dict):
        return None
    found = next((facts[key] for key in _JSON_KEYS if key in facts), None)
    return str(found) if isinstance(found, (str, int)) else None
