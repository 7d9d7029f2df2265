"""Errors for users: one line with the offending value, what is allowed and what to do."""

from __future__ import annotations

import importlib
import os
import reprlib
from collections.abc import Iterable
from difflib import get_close_matches
from types import ModuleType

# A CPU build of torch next to a CUDA build of torchvision makes `import torchvision` raise
# RuntimeError, and a missing shared library raises OSError: ImportError alone is not enough.
BROKEN_IMPORT = (ImportError, RuntimeError, OSError)

_MAX_MESSAGE = 2000  # characters
_MAX_VALUE = 200  # characters of one value in a message
_REPR = reprlib.Repr()
_REPR.maxstring = _REPR.maxother = _MAX_VALUE
_REPR.maxtuple = _REPR.maxlist = _REPR.maxdict = 8


class PscoError(Exception):
    """Something failed at run time; the command line exits with 1.

    The message is made printable: it often contains file names, and those may contain escape
    sequences that would act on the user's terminal.
    """

    exit_code = 1

    def __init__(self, message: str = "") -> None:
        super().__init__(printable(message))


class InputError(PscoError, ValueError):
    """A value given by the user is not usable; the command line exits with 2."""

    exit_code = 2


class DivergedError(PscoError):
    """A value computed in a training step is not finite."""


class StoppedError(PscoError):
    """A signal ended a command early; its work so far is saved.

    Parameters
    ----------
    message
        What was done and how to continue.
    exit_code
        0 if a scheduler requested the stop, since nothing went wrong; 1 after Ctrl-C.
    """

    def __init__(self, message: str, exit_code: int) -> None:
        super().__init__(message)
        self.exit_code = exit_code


def printable(text: str, limit: int = _MAX_MESSAGE) -> str:
    r"""Return a text that is safe to print: one line, without control characters, not too long.

    Control characters, line breaks, bidirectional overrides and bytes that are not Unicode become
    escapes such as ``\x1b``. Of a text longer than ``limit``, the middle is left out.
    """
    text = _shorten(text, limit)
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else repr(c)[1:-1] for c in text)


def quoted(value: object) -> str:
    """Return the ``repr`` of a value for a message, at most about 200 characters long.

    Paths are shown as strings. Of a long string the middle is left out, since the end of a path
    says most.
    """
    if isinstance(value, (str, os.PathLike)):
        return repr(_shorten(str(value), _MAX_VALUE))
    return printable(_REPR.repr(value), _MAX_VALUE)


def counted(number: int, noun: str) -> str:
    """Return a number with its noun, such as ``1 image``, ``2 images`` or ``3 classes``."""
    plural = f"{noun}es" if noun.endswith("s") else f"{noun}s"
    return f"{number:,} {noun if number == 1 else plural}"


def and_more(names: Iterable[object], shown: int = 1) -> str:
    """Return the first names, quoted, and the number of the others: ``'a', 'b' and 3 more``."""
    listed = list(names)
    text = ", ".join(quoted(name) for name in listed[:shown])
    return f"{text} and {len(listed) - shown} more" if len(listed) > shown else text


def unknown_name(kind: str, name: str, known: Iterable[str]) -> InputError:
    """Return the error for an unknown name; it suggests the closest known one.

    Parameters
    ----------
    kind
        What the name stands for, such as ``"recipe"``.
    name
        The name as given.
    known
        All accepted names.
    """
    names = sorted(known)
    near = get_close_matches(name[:_MAX_VALUE], names, n=1, cutoff=0.5)
    hint = f"; did you mean {near[0]!r}?" if near else ""
    return InputError(f"unknown {kind} {quoted(name)}{hint} (known: {', '.join(names)})")


def import_optional(module: str, extra: str) -> ModuleType:
    """Import a module of an optional package.

    Raises
    ------
    InputError
        If the module is missing or broken; the message says how to install it.
    """
    try:
        return importlib.import_module(module)
    except BROKEN_IMPORT as error:
        raise InputError(
            f"{module} cannot be imported ({first_line(error)}); {install_advice(extra)}"
        ) from None


def install_advice(extra: str) -> str:
    """Return how to install an optional dependency of psco, which is on no package index."""
    return f"install it with pip install -e '.[{extra}]' in the source folder of psco"


def first_line(error: BaseException) -> str:
    """Return the first line of an error's message, or its type if it has none."""
    return printable(str(error).strip().split("\n")[0]) or type(error).__name__


def _shorten(text: str, limit: int) -> str:
    if len(text) <= limit:
        return text
    half = (limit - 1) // 2
    return f"{text[:half]}…{text[-half:]}"
