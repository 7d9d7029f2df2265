"""Pictures for the page: small ones, made once and kept, and large ones for a closer look."""

from __future__ import annotations

import hashlib
import io
import os
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from PIL import Image

from psco.data.reading.decode import decode_whole
from psco.data.reading.source import FolderSource
from psco.errors import InputError, quoted
from psco.files.atomic import atomic_path

SMALL, LARGE = 224, 1600  # px of the longest side
_COLOURS = 256  # drawings have fewer, show the artefacts of JPEG, and are small as PNG


class Encoded(NamedTuple):
    """An image file and its media type."""

    content: bytes
    media_type: str


class Thumbnails:
    """Pictures of a folder by number.

    Every picture is decoded and encoded anew: nothing but pixels of it reaches a browser.

    Parameters
    ----------
    folder, names
        The folder, and the files in it.
    cache
        Folder for the small pictures. A file that has changed since is decoded again.
    """

    def __init__(self, folder: Path, names: Sequence[str], cache: Path) -> None:
        self._source = FolderSource(folder)
        self._names = names
        self._cache = cache

    def small(self, number: int) -> Encoded:
        """Return a picture for a grid; see `large`."""
        path = self._cache / self._key(number)
        try:
            content = path.read_bytes()
        except OSError:
            content = _encoded(self._decode(number, SMALL))
            with atomic_path(path) as temporary:
                temporary.write_bytes(content)
        return _typed(content)

    def large(self, number: int) -> Encoded:
        """Return a picture to look at closely.

        Raises
        ------
        InputError
            If there is no such picture, or it cannot be decoded.
        """
        return _typed(_encoded(self._decode(number, LARGE)))

    def _decode(self, number: int, longest: int) -> Image.Image:
        name = self._name(number)
        return decode_whole(self._source.read(name), longest, name=name)

    def _name(self, number: int) -> str:
        if not 0 <= number < len(self._names):
            raise InputError(f"there is no picture {number}; there are {len(self._names)}, from 0")
        return self._names[number]

    def _key(self, number: int) -> str:
        name = self._name(number)
        try:
            about = (self._source.path / name).stat()
        except OSError as error:
            raise InputError(f"cannot read {quoted(name)}: {error.strerror}") from None
        version = f"{SMALL}|{about.st_size}|{about.st_mtime_ns}|"
        digest = hashlib.sha256(version.encode() + os.fsencode(name)).hexdigest()
        return f"{digest[:2]}/{digest[2:34]}"


def _encoded(image: Image.Image) -> bytes:
    file = io.BytesIO()
    if image.getcolors(_COLOURS) is not None:
        image.save(file, "PNG")
    else:
        image.save(file, "JPEG", quality=85)
    return file.getvalue()


def _typed(content: bytes) -> Encoded:
    return Encoded(content, "image/png" if content.startswith(b"\x89PNG") else "image/jpeg")
