"""Locks between processes; the lock of a killed process is free at once."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def file_lock(path: Path, wait: bool = True) -> Iterator[bool]:
    """Hold the lock of a file during the block; yield whether this process holds it.

    Parameters
    ----------
    path
        The file, which is created if missing and stays.
    wait
        Wait until the lock is free. Otherwise yield False at once if another process holds it.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
    except BlockingIOError:
        os.close(descriptor)
        yield False
        return
    try:
        yield True
    finally:
        os.close(descriptor)
