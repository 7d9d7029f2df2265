"""A folder that only its owner can write to, and files in it that are known by their digest.

What is loaded from here runs with all rights of the user, so nobody else may have put it there, and
it must be what the compiler wrote.
"""

from __future__ import annotations

import hashlib
import os
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

if os.name == "posix":  # elsewhere the kernels are left out
    import fcntl

_ASIDE = ".building-"


def native_dir() -> Path:
    """Return the folder for compiled code.

    ``PSCO_NATIVE_DIR`` if set, else ``psco-native-<uid>`` under ``XDG_CACHE_HOME`` or ``~/.cache``.
    """
    if chosen := os.environ.get("PSCO_NATIVE_DIR"):
        return Path(chosen).expanduser().absolute()
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / f"psco-native-{os.geteuid()}"


def made_once(folder: Path, name: str, make: Callable[[Path], None]) -> Path:
    """Return a file of a private folder, made if it is missing or cannot be trusted.

    Processes that need it at the same time wait for the first of them. The file is written aside
    and renamed. Its digest is written last: a file without it was not finished.

    Parameters
    ----------
    folder
        Made, with mode 0700, if it is missing.
    name
        Of the file; its digest is in ``name.sha256``.
    make
        Writes the file to the path that it is given.

    Raises
    ------
    OSError
        If the folder is a link, belongs to another user, is writable by others or not by the user.
    """
    target = folder / name
    _make_private(folder)
    if is_trusted(target):
        return target
    with _locked(folder):
        for leftover in folder.glob(f"{_ASIDE}*"):  # of a process that was killed
            leftover.unlink(missing_ok=True)
        if not is_trusted(target):
            _write(target, make)
    return target


def is_trusted(path: Path) -> bool:
    """Whether a file and its digest are regular files of the user, and agree."""
    digest = _read_own(_digest_path(path))
    return digest is not None and _digest(_read_own(path)) == digest.strip()


def _write(target: Path, make: Callable[[Path], None]) -> None:
    aside, beside = (target.with_name(f"{_ASIDE}{end}") for end in ("library", "digest"))
    old = _digest_path(target)
    try:
        make(aside)
        aside.chmod(0o700)
        digest = _digest(aside.read_bytes())
        assert digest is not None
        beside.write_bytes(digest + b"\n")
        beside.chmod(0o600)
        for path in (aside, beside):
            with path.open("rb") as written:
                os.fsync(written.fileno())
        old.unlink(missing_ok=True)
        aside.replace(target)
        beside.replace(old)
    finally:
        aside.unlink(missing_ok=True)
        beside.unlink(missing_ok=True)


def _make_private(folder: Path) -> None:
    folder.parent.mkdir(parents=True, exist_ok=True)
    with suppress(FileExistsError):
        folder.mkdir(mode=0o700)
    found = folder.lstat()
    if not stat.S_ISDIR(found.st_mode):
        raise NotADirectoryError(f"{folder} must be a folder; links are not followed")
    if found.st_uid != os.geteuid():
        raise PermissionError(f"{folder} must belong to user {os.geteuid()}, not {found.st_uid}")
    if found.st_mode & 0o022:  # anything in it may have been put there by others
        mode = stat.S_IMODE(found.st_mode)
        raise PermissionError(f"{folder} must have mode 0700, not {mode:04o}; remove it")
    if found.st_mode & 0o077:
        folder.chmod(0o700)


@contextmanager
def _locked(folder: Path) -> Iterator[None]:
    flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
    descriptor = os.open(folder / ".lock", flags, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def _read_own(path: Path) -> bytes | None:
    """Return a file's content; None for links, and for what others own or can write."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError:
        return None
    with os.fdopen(descriptor, "rb") as file:
        found = os.fstat(descriptor)
        own = stat.S_ISREG(found.st_mode) and found.st_uid == os.geteuid()
        return file.read() if own and found.st_nlink == 1 and not found.st_mode & 0o022 else None


def _digest_path(path: Path) -> Path:
    return path.with_name(f"{path.name}.sha256")


def _digest(content: bytes | None) -> bytes | None:
    return None if content is None else hashlib.sha256(content).hexdigest().encode()
