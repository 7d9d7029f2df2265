"""Where prepared data live, and how files get there whole or not at all."""

from __future__ import annotations

import os
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def atomic_path(target: Path) -> Iterator[Path]:
    """Write a file aside, then put it in place with one rename.

    Yields a path in the folder of ``target`` (made if missing) for the block to write to. When the
    block ends well the file is flushed to disk and renamed to ``target``; when it raises, the file
    is removed and whatever ``target`` was stays untouched.
    """
    target.parent.mkdir(parents=True, exist_ok=True)
    writer = f"{os.getpid()}-{threading.get_ident()}"
    aside = target.with_name(f".{target.stem}.{writer}.part{target.suffix}")
    aside.touch()
    mode = aside.stat().st_mode  # as the user's umask has it; some writers are stricter
    try:
        yield aside
        aside.chmod(mode)
        with aside.open("rb+") as written:
            os.fsync(written.fileno())
        aside.replace(target)
    except BaseException:
        aside.unlink(missing_ok=True)
        raise
    _sync_folder(target.parent)


def is_leftover(path: Path) -> bool:
    """Say whether a file is what a writer has put aside, by its name."""
    # The second form is of safetensors, which writes aside by itself.
    return path.match(".*.part*") or re.fullmatch(r"\.tmp\w{6}", path.name) is not None


def remove_leftovers(folder: Path) -> None:
    """Remove what writers that were killed have left aside in a folder nobody else writes to."""
    for path in filter(is_leftover, folder.iterdir()):
        path.unlink(missing_ok=True)


def _sync_folder(folder: Path) -> None:
    # The rename itself must survive a power cut; Windows cannot open folders.
    if os.name == "posix":
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
