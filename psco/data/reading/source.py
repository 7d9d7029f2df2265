"""Files in a folder or in a zip archive, behind one interface; nothing is unpacked."""

from __future__ import annotations

import hashlib
import os
import zipfile
import zlib
from pathlib import Path
from typing import Protocol

from psco.data.reading.archive import check_names
from psco.data.reading.limits import current_limits, too_large
from psco.data.reading.walk import Scan, read_regular, scan_folder
from psco.errors import InputError, quoted


class Source(Protocol):
    """A place with files. Names are relative, with ``/`` between folders."""

    path: Path

    def scan(self) -> Scan:
        """List the files that can be read, sorted, and what is skipped."""

    def names(self) -> list[str]:
        """List the files, sorted, without hidden ones."""

    def read(self, name: str) -> bytes:
        """Return the content of a file; InputError if it is missing, damaged or too large."""

    def stamp(self) -> str:
        """Identify the present content by names, sizes and times, without reading it."""


class FolderSource:
    """The regular files below a folder, at any depth; see `scan_folder`."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._limits = current_limits()

    def scan(self) -> Scan:
        """List the files that can be read, sorted, and what is skipped."""
        return scan_folder(self.path, self._limits.follow_links)

    def names(self) -> list[str]:
        """List the files, sorted, without hidden ones."""
        return self.scan().names

    def read(self, name: str) -> bytes:
        """Return the content of a file; InputError if it cannot be read or is too large."""
        return read_regular(self.path / name, self._limits.file_bytes)

    def stamp(self) -> str:
        """Identify the present content by names, sizes and times, without reading it."""
        digest = hashlib.sha256()
        base = os.path.join(self.path, "")  # noqa: PTH118
        for name in self.names():
            try:
                about = os.stat(base + name)  # noqa: PTH116
                version = f"{about.st_size}|{about.st_mtime_ns}"
            except FileNotFoundError:  # a dangling link, which reading will report
                version = "missing"
            digest.update(os.fsencode(f"{name}|{version}\n"))
        return f"{self.path.resolve()}|{digest.hexdigest()[:32]}"


class ZipSource:
    """The files of a zip archive; one with names that lead outside of it is refused."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._limits = current_limits()
        try:
            self._zip = zipfile.ZipFile(path)
        except (zipfile.BadZipFile, OSError, ValueError, NotImplementedError) as error:
            raise InputError(
                f"{quoted(path)} is not a zip archive, or is cut short ({error})"
            ) from None
        check_names(path, self._zip.infolist())

    def scan(self) -> Scan:
        """List the files, sorted; nothing is skipped."""
        return Scan(self.names(), {})

    def names(self) -> list[str]:
        """List the files, sorted, without hidden ones and resource forks of macOS."""
        names = {info.filename for info in self._zip.infolist() if not info.is_dir()}
        hidden = (".", "__MACOSX")
        return sorted(n for n in names if not any(p.startswith(hidden) for p in n.split("/")))

    def read(self, name: str) -> bytes:
        """Return the content of a file; InputError if it is missing, damaged or too large."""
        where = f"{quoted(name)} in {quoted(self.path)}"
        try:
            # zipfile never returns more than the table of contents states.
            size = self._zip.getinfo(name).file_size
            if size > self._limits.file_bytes:
                reason = too_large(size, self._limits.file_bytes)
                raise InputError(f"cannot read {where}: {reason}")
            return self._zip.read(name)
        except InputError:
            raise
        except (KeyError, OSError, EOFError, ValueError, RuntimeError) as error:
            raise InputError(f"cannot read {where}: {error}") from None
        except (zipfile.BadZipFile, zlib.error, NotImplementedError) as error:
            raise InputError(f"{where} is damaged: {error}") from None

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
    raise InputError(f"there is no folder or zip archive {quoted(path)}")
