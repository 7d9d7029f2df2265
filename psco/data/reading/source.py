"""Files in a folder or in a zip archive, read alike and without unpacking anything."""

from __future__ import annotations

import hashlib
import os
import zipfile
import zlib
from pathlib import Path, PurePosixPath
from typing import Protocol

from psco.errors import InputError


class Source(Protocol):
    """A place with files. Names are relative, with ``/`` between folders."""

    path: Path

    def names(self) -> list[str]:
        """List the files, sorted; hidden ones are left out."""

    def read(self, name: str) -> bytes:
        """Give the content of a file; InputError if it is missing or damaged."""

    def stamp(self) -> str:
        """Identify the present content by names, sizes and times, without reading it."""


class FolderSource:
    """The files below a folder, at any depth."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def names(self) -> list[str]:
        """List the files, sorted; hidden ones are left out."""
        # Plain strings: pathlib takes four times as long, which shows with tens of thousands.
        found = []
        skip = len(os.path.join(self.path, ""))  # noqa: PTH118
        for folder, folders, files in os.walk(self.path, followlinks=True):
            folders[:] = [name for name in folders if not name.startswith(".")]
            below = f"{folder}{os.sep}"[skip:].replace(os.sep, "/")
            found += [below + name for name in files if not name.startswith(".")]
        return sorted(found)

    def read(self, name: str) -> bytes:
        """Give the content of a file; InputError if it cannot be read."""
        try:
            return (self.path / name).read_bytes()
        except OSError as error:
            raise InputError(f"cannot read {str(self.path / name)!r}: {error.strerror}") from None

    def stamp(self) -> str:
        """Identify the present content by names, sizes and times, without reading it."""
        total = hashlib.sha256()
        base = os.path.join(self.path, "")  # noqa: PTH118
        for name in self.names():
            try:
                about = os.stat(base + name)  # noqa: PTH116
                facts = f"{about.st_size}|{about.st_mtime_ns}"
            except FileNotFoundError:  # a link to nowhere: reading it will say so
                facts = "missing"
            total.update(os.fsencode(f"{name}|{facts}\n"))
        return f"{self.path.resolve()}|{total.hexdigest()[:32]}"


class ZipSource:
    """The files of a zip archive; one with names that lead out of it is refused."""

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            self._zip = zipfile.ZipFile(path)
        except (zipfile.BadZipFile, OSError, ValueError, NotImplementedError) as error:
            raise InputError(f"{str(path)!r} is no zip archive, or cut short ({error})") from None
        for info in self._zip.infolist():
            if not info.filename:
                raise InputError(f"{str(path)!r} holds a file without a name: it is damaged")
            place = PurePosixPath(info.filename)
            if place.is_absolute() or ".." in place.parts or "\\" in info.filename:
                raise InputError(f"{str(path)!r} holds {info.filename!r}, which leads out of it")

    def names(self) -> list[str]:
        """List the files, sorted; hidden ones and those of macOS's resource forks are left out."""
        names = (info.filename for info in self._zip.infolist() if not info.is_dir())
        hidden = (".", "__MACOSX")
        return sorted(n for n in names if not any(p.startswith(hidden) for p in n.split("/")))

    def read(self, name: str) -> bytes:
        """Give the content of a file; InputError if it is missing or damaged."""
        try:
            return self._zip.read(name)
        except (KeyError, OSError, EOFError, ValueError, RuntimeError) as error:
            raise InputError(f"cannot read {name!r} in {str(self.path)!r}: {error}") from None
        except (zipfile.BadZipFile, zlib.error, NotImplementedError) as error:
            raise InputError(f"{name!r} in {str(self.path)!r} is damaged: {error}") from None

    def stamp(self) -> str:
        """Identify the present content by names, sizes and times, without reading it."""
        about = self.path.stat()
        return f"{self.path.resolve()}|{about.st_size}|{about.st_mtime_ns}"


def open_source(path: Path) -> Source:
    """Open a folder or a zip archive.

    Raises
    ------
    InputError
        If there is no such folder or archive, or the archive is damaged or unsafe.
    """
    if path.is_dir():
        return FolderSource(path)
    if path.is_file():
        return ZipSource(path)
    raise InputError(f"there is no folder or zip archive {str(path)!r}")
