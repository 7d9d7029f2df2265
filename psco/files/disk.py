"""A full disk: the reason in one line, and whether training goes on without what did not fit."""

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
_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)  # no room, none left of a quota, file too large


@contextmanager
def system_errors() -> Iterator[None]:
    """Raise the system's own error where a writer has wrapped it in one that hides the reason."""
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
    """Writes the files of a run, and decides what happens when there is no room for one.

    Parameters
    ----------
    folder
        The run folder.
    on_full_disk
        ``stop`` ends the run; ``continue`` warns, once until a write succeeds again, and leaves it
        to the caller to try again when the next file is due.

    Raises
    ------
    InputError
        For another word.
    """

    def __init__(self, folder: Path, on_full_disk: OnFullDisk) -> None:
        if on_full_disk not in get_args(OnFullDisk):
            raise InputError(f"on_full_disk must be 'stop' or 'continue', not {on_full_disk!r}")
        self._folder, self._goes_on = folder, on_full_disk == "continue"
        self._warned = False

    def write(self, what: str, write: Callable[[], None], last: bool = False) -> None:
        """Write something.

        Parameters
        ----------
        what
            What to call it in a message.
        write
            Writes it whole or not at all, or raises OSError.
        last
            Whether there is no later time to try again: then a full disk is an error in any case.

        Raises
        ------
        PscoError
            If it cannot be written and training must not go on without it.
        """
        try:
            write()
        except OSError as error:
            full = error.errno in _FULL
            reason = f"{what} cannot be written to {self._folder}: {error.strerror or error}"
            if not full or last or not self._goes_on:
                raise PscoError(f"{reason}; {self._advice(full)}") from None
            if not self._warned:
                self._warned = True
                print(f"warning: {reason}; training goes on and tries again", file=sys.stderr)
        else:
            self._warned = False

    def _advice(self, full: bool) -> str:
        kept = "the last checkpoint is as it was"
        if not full:
            return f"{kept}, and --resume continues from it"
        more = "" if self._goes_on else ", or train on without with --on-full-disk continue"
        return f"{kept}; make room and continue with --resume{more}"
