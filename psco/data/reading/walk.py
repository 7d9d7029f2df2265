"""Files below a folder: each real file once, and nothing that is not a regular file.

A folder from elsewhere may hold named pipes, devices, links to itself and links to the rest of the
disk. None of them may hang a program, repeat images or bring in files that are not the folder's.
"""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import NamedTuple

from psco.data.reading.limits import FOLLOW_LINKS, too_large
from psco.errors import InputError, quoted

_KINDS = {
    stat.S_IFIFO: "a named pipe",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
    stat.S_IFSOCK: "a socket",
    stat.S_IFDIR: "a folder",
}


class Scan(NamedTuple):
    """The files below a folder.

    ``names`` are sorted, with ``/`` between folders. ``skipped`` holds the names of what is not
    read, and why.
    """

    names: list[str]
    skipped: dict[str, str]


def scan_folder(root: Path, follow_links: bool = False) -> Scan:
    """List the regular files below a folder, at any depth; hidden ones are left out.

    Links inside the folder are followed where they lead to something that is not listed already.
    Links to the outside are skipped, unless ``follow_links``. A dangling link is listed, so that
    reading it is an error.
    """
    top = os.path.realpath(root)
    files: dict[str, str] = {}  # real path of each name
    file_links: dict[str, str] = {}
    folder_links: list[tuple[str, str]] = []
    skipped: dict[str, str] = {}
    pending = [(top, "")]  # folders, by their real paths
    visited = {top}
    while pending or folder_links:
        if not pending:  # all real folders come first, so that links to them add nothing
            name, target = folder_links.pop()
            if target not in visited:
                visited.add(target)
                pending.append((target, f"{name}/"))
            continue
        folder, prefix = pending.pop()
        try:
            with os.scandir(folder) as listed:
                entries = list(listed)
        except OSError as error:
            skipped[prefix.rstrip("/") or str(root)] = f"cannot be read: {error.strerror}"
            continue
        for entry in entries:
            name = prefix + entry.name
            if entry.name.startswith("."):
                continue
            if entry.is_symlink():
                target = os.path.realpath(entry.path)
                if not (follow_links or _is_inside(target, top)):
                    skipped[name] = f"links to {quoted(target)}, outside the folder"
                elif os.path.isdir(target):  # noqa: PTH112
                    folder_links.append((name, target))
                else:
                    file_links[name] = target
            elif entry.is_dir(follow_symlinks=False):
                if entry.path not in visited:
                    visited.add(entry.path)
                    pending.append((entry.path, f"{name}/"))
            elif entry.is_file(follow_symlinks=False):
                files[name] = entry.path
            else:
                skipped[name] = f"is {_kind(entry.stat(follow_symlinks=False))}"
    seen = set(files.values())
    for name in sorted(file_links):
        target = file_links[name]
        if target in seen:
            continue
        seen.add(target)
        if os.path.isfile(target) or not os.path.exists(target):  # noqa: PTH110, PTH113
            files[name] = target
        else:
            skipped[name] = f"links to {_kind(os.stat(target))}"  # noqa: PTH116
    return Scan(sorted(files), dict(sorted(skipped.items())))


def skipped_note(skipped: dict[str, str]) -> str:
    """Return a sentence about what a scan skipped, with the first reason."""
    name, why = next(iter(skipped.items()))
    others = f" (and {len(skipped) - 1} more)" if len(skipped) > 1 else ""
    hint = f"; set {FOLLOW_LINKS}=1 to follow links" if "outside" in why else ""
    return f"{quoted(name)}{others} is skipped: it {why}{hint}"


def read_regular(path: Path, max_bytes: int) -> bytes:
    """Read a regular file, or a link to one; never wait for a pipe or a device.

    Raises
    ------
    InputError
        If it cannot be read, is something else, or is larger than ``max_bytes``.
    """
    try:
        _check_regular(path, path.stat())  # before opening, which can act on a device
        # Without blocking, in case the file is replaced by a pipe in between.
        flags = os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0)
        with os.fdopen(os.open(path, flags), "rb") as file:
            about = os.fstat(file.fileno())
            _check_regular(path, about)
            content = file.read(max_bytes + 1) if about.st_size <= max_bytes else b""
            size = max(about.st_size, len(content))
    except (OSError, ValueError) as error:  # ValueError: a null byte in the name
        if isinstance(error, InputError):
            raise
        reason = error.strerror if isinstance(error, OSError) else error
        raise InputError(f"cannot read {quoted(path)}: {reason}") from None
    if size > max_bytes:
        raise InputError(f"cannot read {quoted(path)}: {too_large(size, max_bytes)}")
    return content


def _check_regular(path: Path, about: os.stat_result) -> None:
    if not stat.S_ISREG(about.st_mode):
        raise InputError(f"cannot read {quoted(path)}: it is {_kind(about)}, not a regular file")


def _kind(about: os.stat_result) -> str:
    return _KINDS.get(stat.S_IFMT(about.st_mode), "a special file")


def _is_inside(path: str, folder: str) -> bool:
    return path == folder or path.startswith(os.path.join(folder, ""))  # noqa: PTH118
