"""Unpack zip archives from anywhere without harm."""

from __future__ import annotations

import os
import shutil
import stat
import zipfile
import zlib
from pathlib import Path, PurePosixPath, PureWindowsPath

from psco.errors import InputError, PscoError


def extract(archive: Path, target: Path, *, max_bytes: int, max_files: int) -> Path:
    """Unpack a zip archive into a folder, completely or not at all.

    Parameters
    ----------
    archive
        The zip file.
    target
        Folder to make; it must not exist yet, or be empty.
    max_bytes, max_files
        The most that may come out.

    Returns
    -------
    Path
        The target.

    Raises
    ------
    InputError
        If the archive is damaged, encrypted, too large, or holds links or names that lead out of
        the folder; or if the target holds something.
    PscoError
        If the files cannot be written.
    """
    if target.exists() and (not target.is_dir() or any(target.iterdir())):
        raise InputError(f"{str(target)!r} exists already; remove it, or unpack elsewhere")
    aside = target.with_name(f".{target.name}.{os.getpid()}.part")
    try:
        with zipfile.ZipFile(archive) as content:
            # ZipInfo.is_dir fails for a file without a name, which damage may have made.
            members = [info for info in content.infolist() if not info.filename.endswith("/")]
            _refuse_harm(archive, members, max_bytes, max_files)
            aside.mkdir(parents=True)
            _unpack(content, members, aside)
        if target.exists():  # empty, as checked above; Windows renames to no existing folder
            target.rmdir()
        aside.rename(target)
    except (zipfile.BadZipFile, zlib.error, EOFError, RuntimeError, ValueError) as error:
        # RuntimeError is what zipfile raises for encryption and for unknown compression.
        if isinstance(error, InputError):
            raise
        raise InputError(f"cannot unpack {str(archive)!r}: {error}") from None
    except OSError as error:
        raise PscoError(
            f"cannot unpack {str(archive)!r} to {str(target)!r}: {error.strerror or error}"
        ) from None
    finally:
        shutil.rmtree(aside, ignore_errors=True)
    return target


def _refuse_harm(
    archive: Path, members: list[zipfile.ZipInfo], max_bytes: int, max_files: int
) -> None:
    for member in members:
        if not member.filename:
            raise InputError(f"{str(archive)!r} holds a file without a name: it is damaged")
        if _leads_out(member.filename):
            raise InputError(f"{str(archive)!r} holds {member.filename!r}, which leads out of it")
        if stat.S_ISLNK(member.external_attr >> 16):
            raise InputError(f"{str(archive)!r} holds {member.filename!r}, which is a link")
    size = sum(member.file_size for member in members)
    if len(members) > max_files or size > max_bytes:
        raise InputError(
            f"{str(archive)!r} holds {len(members)} files of {size} bytes together; at most "
            f"{max_files} files and {max_bytes} bytes are unpacked"
        )


def _leads_out(name: str) -> bool:
    place = PurePosixPath(name)
    return (
        place.is_absolute()
        or ".." in place.parts
        or "\\" in name
        or bool(PureWindowsPath(name).drive)
    )


def _unpack(content: zipfile.ZipFile, members: list[zipfile.ZipInfo], folder: Path) -> None:
    for member in members:
        file = folder / member.filename
        file.parent.mkdir(parents=True, exist_ok=True)
        # No more comes out of a member than the table of contents says, which was checked.
        with content.open(member) as packed, file.open("xb") as out:
            shutil.copyfileobj(packed, out)
