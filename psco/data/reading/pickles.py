"""Pickles of plain arrays, read without running any code.

A pickle can name any function to be called when it is read. Here nothing that it names is called:
Python rebuilds plain containers, and this module rebuilds arrays from their bytes.
"""

from __future__ import annotations

import pickle
import pickletools
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from psco.errors import InputError, printable, quoted


def read_pickle(file: Path) -> Any:
    """Read a pickle of plain containers, numbers, strings and arrays, written by Python 2 or 3.

    Raises
    ------
    InputError
        If it is damaged, or names anything else.
    """
    try:
        with file.open("rb") as content:
            _check_sizes(content)
            content.seek(0)
            return _PlainUnpickler(content, encoding="latin1").load()
    except InputError as error:
        raise InputError(f"{quoted(file)} {error}") from None
    except Exception as error:  # a damaged pickle can raise almost anything
        raise InputError(
            f"{quoted(file)} is not a pickle, or is damaged ({describe_error(error)}); get another "
            f"copy"
        ) from None


def _check_sizes(content: BinaryIO) -> None:
    """Raise ValueError for a pickle that claims more objects than it has: it allocates them."""
    for number, (opcode, argument, _) in enumerate(pickletools.genops(content)):
        if opcode.name.endswith("PUT") and int(argument or 0) > number:
            raise ValueError(f"object {argument} is stored too early")


def describe_error(error: Exception) -> str:
    """Return type and message of any error, in one short line."""
    return printable(f"{type(error).__name__}: {error}", 200)


class _Dtype:
    """Stands for a ``numpy.dtype`` while a pickle is read."""

    def __init__(self, code: str, *_: object) -> None:
        if not re.fullmatch(r"[biuf][1248]|[SU][1-9][0-9]{0,3}", code):
            raise InputError(
                f"has an array of type {quoted(code)}; only numbers and strings are read"
            )
        self.dtype = np.dtype(code)

    def __setstate__(self, state: Any) -> None:
        self.dtype = self.dtype.newbyteorder(state[1])


class _Array(np.ndarray):
    """An array that is filled from a pickle, with a type that was checked."""

    def __setstate__(self, state: Any) -> None:
        _, shape, dtype, fortran, content = state
        # Python 2 did not distinguish bytes from text.
        raw = content.encode("latin1") if isinstance(content, str) else content
        if not isinstance(raw, bytes):
            raise TypeError("the content of an array is not bytes")
        checked: Any = (1, tuple(shape), dtype.dtype, bool(fortran), raw)
        super().__setstate__(checked)


def _from_bytes(content: Any, dtype: _Dtype, shape: Any, order: Any) -> np.ndarray:
    array = np.frombuffer(content, dtype=dtype.dtype).reshape(shape, order=order)
    return np.array(array)  # writable


_STAND_INS: dict[str, Callable[..., Any]] = {
    "numpy.dtype": _Dtype,
    "numpy.ndarray": lambda: None,  # an argument of the next one, never called
    "numpy.core.multiarray._reconstruct": lambda *_: _Array((0,), dtype=np.uint8),
    "numpy.core.multiarray.scalar": lambda dtype, raw: _from_bytes(raw, dtype, (), "C").item(),
    "numpy.core.numeric._frombuffer": _from_bytes,
    "_codecs.encode": lambda text, _: text.encode("latin1"),
    "collections.OrderedDict": dict,
    **{f"builtins.{kind.__name__}": kind for kind in (list, tuple, dict, set, frozenset)},
}


class _PlainUnpickler(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        """Return the stand-in for a name in a pickle; InputError if there is none."""
        modern = module.replace("numpy._core", "numpy.core").replace("__builtin__", "builtins")
        stand_in = _STAND_INS.get(f"{modern}.{name}")
        if stand_in is None:
            full_name = f"{module}.{name}"
            raise InputError(
                f"names {quoted(full_name)}, which may run code, so it was not read; get a copy "
                f"with arrays only"
            )
        # A pickle can set attributes of what it receives, so it never receives a shared object.
        return stand_in if isinstance(stand_in, type) else lambda *parts: stand_in(*parts)

    def persistent_load(self, pid: Any) -> Any:
        """Raise InputError: references to objects outside of the pickle are not followed."""
        raise InputError(
            f"refers to {quoted(str(pid))}, which is outside of it; get a copy with arrays only"
        )
