"""Full disks: an error of one line, and the choice to train on without the file."""

from __future__ import annotations

import errno
import os
import re
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Literal, get_args

from psco.errors import InputError, PscoError

OnFullDisk = Literal["stop", "continue"]
_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)  # disk full, quota exceeded, file too large


@contextmanager
def system_errors() -> Iterator[None]:
    """Re-raise the OSError that a writer has wrapped in an exception of another type."""
    try:
        yield
    except OSError:
        raise
    except Exception as error:
        cause: BaseException | None = error
        while cause is not None:
            if isinstance(cause, OSError):
                raise cause from None
            if found := re.search(r"\(os error (\d+)\)", str(cause)):  # as safetensors writes it
                raise OSError(int(found[1]), os.strerror(int(found[1]))) from None
            cause = cause.__context__
        raise


class DiskGuard:
    """Writes the files of a run and decides what happens when the disk is full.

    Parameters
    ----------
    folder
        The run folder.
    on_full_disk
        ``stop`` ends the run. ``continue`` prints a warning, once until a write succeeds again; the
        caller tries again when the next file is due.

    Raises
    ------
    InputError
        For any other value.
    """

    def __init__(self, folder: Path, on_full_disk: OnFullDisk) -> None:
        if on_full_disk not in get_args(OnFullDisk):
            raise InputError(f"on_full_disk must be 'stop' or 'continue', not {on_full_disk!r}")
        self._folder = folder
        self._continues = on_full_disk == "continue"
        self._warned = False

    def write(self, what: str, write: Callable[[], None], last: bool = False) -> None:
        """Write one file.

        Parameters
        ----------
        what
            Name of the file in messages.
        write
            Writes the file atomically, or raises OSError.
        last
            Whether this is the last attempt: a full disk is then always an error.

        Raises
        ------
        PscoError
            If the file cannot be written and training must not go on without it.
        """
        try:
            if not self._folder.is_dir():  # writers would create it again, without its other files
                raise FileNotFoundError(errno.ENOENT, "the folder was removed or renamed")
            write()
        except OSError as error:
            full = error.errno in _FULL
            reason = f"{what} cannot be written to {self._folder}: {error.strerror or error}"
            if not self._folder.is_dir():
                raise PscoError(f"{reason}; move it back and continue with --resume") from None
            if not full or last or not self._continues:
                raise PscoError(f"{reason}; {self._advice(full)}") from None
            if not self._warned:
                self._warned = True
                print(
                    f"warning: {reason}; training continues and tries again later", file=sys.stderr
                )
        else:
            self._warned = False

    def _advice(self, full: bool) -> str:
        kept = "the last checkpoint is intact"
        if not full:
            return f"{kept}; --resume continues from it"
        more = "" if self._continues else ", or train on without it: --on-full-disk continue"
        return f"{kept}; free some space and continue with --resume{more}"
