"""The run folder as a place: which process works in it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from psco.errors import InputError, quoted
from psco.files.lock import exclusive
from psco.training.checkpoint import LOCK


@contextmanager
def hold_folder(folder: Path) -> Iterator[None]:
    """Keep other processes from training in a folder during the block.

    A folder that is created for it and stays empty is removed again.

    Raises
    ------
    InputError
        If nothing can be written there.
    PscoError
        If another process trains in it.
    """
    advice = "wait until it has finished, or choose another --out"
    with ExitStack() as stack:
        try:
            stack.enter_context(
                exclusive(folder / LOCK, f"the run folder {quoted(folder)}", advice)
            )
        except OSError as error:
            raise InputError(
                f"cannot write to the run folder {quoted(folder)}: {error.strerror}; choose "
                f"another --out"
            ) from None
        yield
