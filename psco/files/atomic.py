"""Files that appear complete or not at all."""

from __future__ import annotations

import os
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def atomic_path(target: Path) -> Iterator[Path]:
    """Yield a temporary path to write to, and rename it to ``target`` at the end of the block.

    The temporary file is in the folder of ``target``, which is created if missing. If the block
    succeeds, the file is flushed to disk and renamed; if it raises, the file is removed and
    ``target`` is left as it was.
    """
    target.parent.mkdir(parents=True, exist_ok=True)
    writer = f"{os.getpid()}-{threading.get_ident()}"
    temporary = target.with_name(f".{target.stem}.{writer}.part{target.suffix}")
    temporary.touch()
    mode = temporary.stat().st_mode  # follows the umask; some writers set a stricter one
    try:
        yield temporary
        temporary.chmod(mode)
        with temporary.open("rb+") as written:
            os.fsync(written.fileno())
        temporary.replace(target)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    _sync_folder(target.parent)


def is_leftover(path: Path) -> bool:
    """Whether a file is, by its name, the temporary file of a writer."""
    # The second pattern is that of safetensors, which makes its own temporary files.
    return path.match(".*.part*") or re.fullmatch(r"\.tmp\w{6}", path.name) is not None


def remove_leftovers(folder: Path) -> None:
    """Remove the temporary files of killed writers from a folder that has no other writer."""
    for path in filter(is_leftover, folder.iterdir()):
        path.unlink(missing_ok=True)


def _sync_folder(folder: Path) -> None:
    # The rename itself must survive a power failure. Windows cannot open folders.
    if os.name == "posix":
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
