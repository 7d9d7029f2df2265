"""Locks between processes, on local and on network disks.

A lock is a file that names its holder: process, machine, and the time it started. The system holds
it (``flock``), so that the lock of a killed process is free at once. On a disk without ``flock``,
and on one that knows it within each machine only, the file itself is the lock. Its holder touches
it every few seconds, and a lock of another machine that is not touched any more is free.
"""

from __future__ import annotations

import errno
import fcntl
import json
import os
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path

from psco.errors import PscoError, quoted

TOUCH_SECONDS = 5.0
STALE_SECONDS = 20.0  # without a touch, after which a lock of another machine is free
SETTLE_SECONDS = 1.0  # longer than it takes to read a lock and sign it
_POLL_SECONDS = 0.2
_NO_FLOCK = (errno.ENOLCK, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS, errno.EINVAL)
_held: set[int] = set()  # descriptors


@dataclass(frozen=True)
class Holder:
    """The process that holds a lock.

    Parameters
    ----------
    pid, host
        Its number, and the name of its machine.
    started
        When it started, in ticks since the machine did: numbers of processes are used again.
    """

    pid: int
    host: str
    started: int

    @classmethod
    def this(cls) -> Holder:
        """Return the holder that this process is."""
        return cls(os.getpid(), socket.gethostname(), _start_of(os.getpid()))

    @property
    def is_here(self) -> bool:
        """Whether the process is, or was, one of this machine."""
        return self.host == socket.gethostname()

    @property
    def is_gone(self) -> bool:
        """Whether the process is known to have ended."""
        return self.is_here and _start_of(self.pid) != self.started

    def __str__(self) -> str:
        return f"process {self.pid} on {quoted(self.host)[1:-1]}"


@contextmanager
def file_lock(path: Path, wait: bool = True) -> Iterator[bool]:
    """Hold a lock during the block; yield whether this process holds it.

    Parameters
    ----------
    path
        The lock file, which exists while the lock is held. Folders that are created for it are
        removed at the end of the block if they are still empty.
    wait
        Wait until the lock is free. Otherwise yield False if another process holds it; for one of
        another machine that may take 20 seconds, in which the holder is watched.
    """
    created = _make_folders(path.parent)
    try:
        descriptor = _acquire(path, wait)
        if descriptor is None:
            yield False
            return
        released = threading.Event()
        threading.Thread(target=_touch, args=(path, released), daemon=True).start()
        pid = os.getpid()
        try:
            yield True
        finally:
            released.set()
            if os.getpid() == pid:  # not in a child that was forked inside the block
                path.unlink(missing_ok=True)
                _held.discard(descriptor)
                os.close(descriptor)
    finally:
        for folder in created:
            with suppress(OSError):  # not empty, or gone
                folder.rmdir()


@contextmanager
def exclusive(path: Path, what: str, advice: str) -> Iterator[None]:
    """Hold a lock during the block.

    Raises
    ------
    PscoError
        If another process holds it: ``what`` is in use by whom, and the ``advice``.
    """
    with file_lock(path, wait=False) as is_mine:
        if not is_mine:
            holder = holder_of(path)
            by = "another process" if holder is None else str(holder)
            raise PscoError(f"{what} is in use by {by}; {advice}")
        yield


def holder_of(path: Path) -> Holder | None:
    """Return who holds, or held, a lock; None if that is not recorded."""
    try:
        with path.open("rb") as file:
            fields = json.loads(file.read(10_000))
        holder = Holder(int(fields["pid"]), str(fields["host"])[:255], int(fields["started"]))
    except (OSError, ValueError, TypeError, KeyError, RecursionError):
        return None
    return holder if 0 < holder.pid < 2**31 else None


def _acquire(path: Path, wait: bool) -> int | None:
    """Return the descriptor of the lock, or None if another process holds it."""
    while True:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            if _is_free(path, by_system := _flock(descriptor)):
                _sign(descriptor)
                if by_system is None:  # another process may have found the same abandoned lock
                    time.sleep(SETTLE_SECONDS)
                if _is_the_file(path, descriptor) and holder_of(path) == Holder.this():
                    _held.add(descriptor)
                    return descriptor
            elif not wait and _is_the_file(path, descriptor):
                return None
        finally:
            if descriptor not in _held:
                os.close(descriptor)
        if wait:
            time.sleep(_POLL_SECONDS)


def _flock(descriptor: int) -> bool | None:
    """Take the lock of the system; False if another process has it, None if there is none."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError as error:
        if error.errno not in _NO_FLOCK:
            raise
        return None
    return True


def _is_free(path: Path, by_system: bool | None) -> bool:
    """Whether nobody else holds a lock that was, or was not, taken by the system."""
    if by_system is False:
        return False
    holder = holder_of(path)
    if holder is None or holder.is_gone:
        return True
    if holder.is_here:
        return by_system is True
    first, until = _touched(path), time.monotonic() + STALE_SECONDS
    while time.monotonic() < until:
        time.sleep(_POLL_SECONDS)
        if _touched(path) != first:
            return False
    return True


def _touched(path: Path) -> int:
    """Return when a lock was last touched; 0 if it was removed."""
    try:
        with path.open("rb") as file:  # opened, because network disks cache what stat returns
            return os.fstat(file.fileno()).st_mtime_ns
    except FileNotFoundError:
        return 0


def _sign(descriptor: int) -> None:
    os.ftruncate(descriptor, 0)
    os.pwrite(descriptor, json.dumps(asdict(Holder.this())).encode(), 0)


def _touch(path: Path, released: threading.Event) -> None:
    while not released.wait(TOUCH_SECONDS):
        with suppress(OSError):  # the folder was removed
            os.utime(path)


def _is_the_file(path: Path, descriptor: int) -> bool:
    """Whether the open file is still the one at the path: a holder removes it at the end."""
    try:
        return os.path.samestat(path.stat(), os.fstat(descriptor))
    except FileNotFoundError:
        return False


def _start_of(pid: int) -> int:
    """Return when a process started: 0 if it has ended, and 1 on a system that does not tell."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()
    except OSError:
        if Path("/proc/self/stat").exists():
            return 0
    else:
        return 0 if fields[0] in (b"Z", b"X") else int(fields[19])
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return 0
    except PermissionError:  # it is somebody else's
        return 1
    return 1


def _make_folders(folder: Path) -> list[Path]:
    """Create a folder and its parents; return those that were missing, the innermost first."""
    missing = []
    while not folder.exists() and folder != folder.parent:
        missing.append(folder)
        folder = folder.parent
    if missing:
        missing[0].mkdir(parents=True, exist_ok=True)
    return missing


def _let_go_in_child() -> None:
    # A child that outlives its parent must not hold the lock of the parent.
    for descriptor in _held:
        with suppress(OSError):
            os.close(descriptor)
    _held.clear()


os.register_at_fork(after_in_child=_let_go_in_child)
