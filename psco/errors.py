"""Errors that people read: one line, the offending value, what is allowed, what to do."""

from __future__ import annotations

import importlib
from collections.abc import Iterable
from difflib import get_close_matches
from types import ModuleType

# A CPU build of torch beside a CUDA build of torchvision makes `import torchvision` raise
# RuntimeError, and a missing shared library raises OSError: ImportError alone is not enough.
BROKEN_IMPORT = (ImportError, RuntimeError, OSError)


class PscoError(Exception):
    """Something failed while running; the command line exits with 1."""

    exit_code = 1


class InputError(PscoError, ValueError):
    """A value given by the user cannot be used; the command line exits with 2."""

    exit_code = 2


class DivergedError(PscoError):
    """Numbers inside a step of training stopped being finite."""


class StoppedError(PscoError):
    """A signal has ended a command early; what was done is saved.

    Parameters
    ----------
    message
        What was done and how to go on.
    exit_code
        0 where a scheduler has asked for it, as nothing went wrong; 1 after Ctrl-C.
    """

    def __init__(self, message: str, exit_code: int) -> None:
        super().__init__(message)
        self.exit_code = exit_code


def unknown_name(kind: str, name: str, known: Iterable[str]) -> InputError:
    """Make the error for a name that is not known, with the nearest known one.

    Parameters
    ----------
    kind
        What the name stands for, such as ``"recipe"``.
    name
        The name as given.
    known
        All names that would have been accepted.
    """
    names = sorted(known)
    near = get_close_matches(name, names, n=1, cutoff=0.5)
    hint = f"; did you mean {near[0]!r}?" if near else ""
    return InputError(f"unknown {kind} {name!r}{hint} (known: {', '.join(names)})")


def import_optional(module: str, extra: str) -> ModuleType:
    """Import a module of an optional package.

    Raises
    ------
    InputError
        If the module is missing or broken; the message names the extra that installs it.
    """
    try:
        return importlib.import_module(module)
    except BROKEN_IMPORT as error:
        raise InputError(
            f"{module} cannot be used ({first_line(error)}); install it with "
            f"pip install 'psco[{extra}]'"
        ) from None


def first_line(error: BaseException) -> str:
    """Return the first line of an error's message, or its type if it has none."""
    return str(error).strip().split("\n")[0] or type(error).__name__
