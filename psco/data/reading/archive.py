"""Unpacking of zip archives that may be hostile."""

from __future__ import annotations

import os
import shutil
import stat
import zipfile
import zlib
from pathlib import Path, PurePosixPath, PureWindowsPath

from psco.errors import InputError, PscoError, counted, quoted


def extract(archive: Path, target: Path, *, max_bytes: int, max_files: int) -> Path:
    """Unpack a zip archive into a folder, completely or not at all.

    Parameters
    ----------
    archive
        The zip file.
    target
        Folder to create; it must not exist yet, or be empty.
    max_bytes, max_files
        Limits on the unpacked content.

    Returns
    -------
    Path
        The target.

    Raises
    ------
    InputError
        If the archive is damaged, encrypted, too large, or contains links or names that lead
        outside of the folder; or if the target is not empty.
    PscoError
        If the files cannot be written.
    """
    if target.exists() and (not target.is_dir() or any(target.iterdir())):
        raise InputError(f"{quoted(target)} exists already; remove it, or unpack elsewhere")
    temporary = target.with_name(f".{target.name}.{os.getpid()}.part")
    try:
        with zipfile.ZipFile(archive) as content:
            # ZipInfo.is_dir fails for a file without a name, which a damaged archive may have.
            members = [info for info in content.infolist() if not info.filename.endswith("/")]
            _check_members(archive, members, max_bytes, max_files)
            temporary.mkdir(parents=True)
            _unpack(content, members, temporary)
        if target.exists():  # and is empty; Windows cannot rename to an existing folder
            target.rmdir()
        temporary.rename(target)
    except (zipfile.BadZipFile, zlib.error, EOFError, RuntimeError, ValueError) as error:
        # zipfile raises RuntimeError for encryption and for unknown compression.
        if isinstance(error, InputError):
            raise
        raise InputError(f"cannot unpack {quoted(archive)}: {error}") from None
    except OSError as error:
        raise PscoError(
            f"cannot unpack {quoted(archive)} to {quoted(target)}: {error.strerror or error}"
        ) from None
    finally:
        shutil.rmtree(temporary, ignore_errors=True)
    return target


def check_names(archive: Path, members: list[zipfile.ZipInfo]) -> None:
    """Raise InputError if a member has no name, or one that leads outside of the archive."""
    for member in members:
        if not member.filename:
            raise InputError(f"{quoted(archive)} is damaged: it has a file without a name")
        if _leads_outside(member.filename):
            raise InputError(
                f"{quoted(archive)} is unsafe: the name {quoted(member.filename)} leads outside of "
                f"it; pack it again"
            )


def _leads_outside(name: str) -> bool:
    """Whether the name of a member is absolute, on a drive or has ``..`` or a backslash in it."""
    path = PurePosixPath(name)
    return (
        path.is_absolute()
        or ".." in path.parts
        or "\\" in name
        or PureWindowsPath(name).drive != ""
    )


def _check_members(
    archive: Path, members: list[zipfile.ZipInfo], max_bytes: int, max_files: int
) -> None:
    check_names(archive, members)
    for member in members:
        if stat.S_ISLNK(member.external_attr >> 16):
            raise InputError(f"{quoted(archive)} is unsafe: {quoted(member.filename)} is a link")
    size = sum(member.file_size for member in members)
    if len(members) > max_files or size > max_bytes:
        raise InputError(
            f"{quoted(archive)} is too large: {counted(len(members), 'file')} and {size:,} bytes; "
            f"the limits are {max_files:,} files and {max_bytes:,} bytes"
        )


def _unpack(content: zipfile.ZipFile, members: list[zipfile.ZipInfo], folder: Path) -> None:
    for member in members:
        file = folder / member.filename
        file.parent.mkdir(parents=True, exist_ok=True)
        # zipfile never returns more than the table of contents states, which was checked.
        with content.open(member) as packed, file.open("xb") as out:
            shutil.copyfileobj(packed, out)
