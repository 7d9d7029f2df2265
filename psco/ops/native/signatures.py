"""The C functions and what they take: the one table that ctypes is set up from.

ctypes would pick a C type from each Python value. A whole number where C wants a double then lands
in another register, and every later argument shifts. Here each value is converted to the type that
the prototype has. ``tests/test_native_safety.py`` holds the table against the prototypes.
"""

from __future__ import annotations

import ctypes
import operator
from typing import NamedTuple, SupportsFloat, SupportsIndex

import torch
from torch import Tensor

from psco.errors import InputError

Argument = Tensor | SupportsFloat | SupportsIndex | None


class Kind(NamedTuple):
    """The kind of a parameter.

    Parameters
    ----------
    spelling
        Its C type without ``const``.
    type
        Its type for ctypes.
    formats
        For pointers, the number formats of the tensors it takes.
    optional
        Whether None is allowed, as NULL.
    """

    spelling: str
    type: type
    formats: tuple[torch.dtype, ...] = ()
    optional: bool = False


INT = Kind("int64_t", ctypes.c_int64)
DOUBLE = Kind("double", ctypes.c_double)
FLOATS = Kind("float *", ctypes.c_void_p, (torch.float32,))
MAYBE_FLOATS = FLOATS._replace(optional=True)
DOUBLES = Kind("double *", ctypes.c_void_p, (torch.float64,))
INTS = Kind("int64_t *", ctypes.c_void_p, (torch.int64,))
PIXELS = Kind("void *", ctypes.c_void_p, (torch.uint8, torch.float32))


class Signature(NamedTuple):
    """What a C function returns, None for nothing, and the kinds of its parameters."""

    result: Kind | None
    parameters: tuple[Kind, ...]


def _returns(result: Kind | None, *parameters: Kind) -> Signature:
    return Signature(result, parameters)


SIGNATURES: dict[str, Signature] = {
    "assignment_block": _returns(INT),
    "assignment_scratch": _returns(INT, *[INT] * 4),
    "assignment_plan": _returns(
        None, FLOATS, FLOATS, DOUBLE, FLOATS, FLOATS, FLOATS, INTS, FLOATS, *[INT] * 5
    ),
    "block_scratch": _returns(INT, *[INT] * 2),
    "block_forward": _returns(
        None, FLOATS, FLOATS, MAYBE_FLOATS, FLOATS, DOUBLES, FLOATS, *[INT] * 7
    ),
    "block_backward": _returns(None, *[FLOATS] * 7, MAYBE_FLOATS, FLOATS, FLOATS, *[INT] * 7),
    "contrast_block": _returns(INT),
    "contrast_scratch": _returns(INT, *[INT] * 3),
    "contrast_keys": _returns(
        None, FLOATS, FLOATS, FLOATS, DOUBLE, INT, FLOATS, FLOATS, FLOATS, *[INT] * 4
    ),
    "crop_scratch": _returns(INT, *[INT] * 3),
    "crop_resize": _returns(
        None, PIXELS, INTS, INTS, FLOATS, INT, INTS, FLOATS, INT, FLOATS, FLOATS, *[INT] * 11
    ),
    "first_block_scratch": _returns(INT, *[INT] * 3),
    "first_block_moments": _returns(None, FLOATS, DOUBLES, FLOATS, *[INT] * 5),
    "first_block_forward": _returns(None, *[FLOATS] * 4, *[INT] * 6),
    "first_block_backward": _returns(None, *[FLOATS] * 6, *[INT] * 6),
    "mlp_panel": _returns(INT),
    "mlp_scratch": _returns(INT, *[INT] * 3),
    "mlp_forward": _returns(None, *[FLOATS] * 5, DOUBLE, *[FLOATS] * 5, *[INT] * 5),
    "mlp_backward": _returns(
        None, *[FLOATS] * 5, DOUBLE, *[FLOATS] * 3, MAYBE_FLOATS, *[FLOATS] * 5, *[INT] * 5
    ),
    "product_columns": _returns(INT),
}


def declare(library: ctypes.CDLL) -> None:
    """Set ``argtypes`` and ``restype`` of every function of the library.

    Raises
    ------
    AttributeError
        If the library lacks one of them.
    """
    for name, (result, parameters) in SIGNATURES.items():
        function = getattr(library, name)
        function.argtypes = [kind.type for kind in parameters]
        function.restype = result.type if result else None


def convert(name: str, arguments: tuple[Argument, ...]) -> list[int | float | None]:
    """Return the arguments of a function as the numbers and addresses that its prototype has.

    Raises
    ------
    InputError
        If there are too many or too few, or one cannot be converted without loss.
    """
    kinds = SIGNATURES[name].parameters
    if len(arguments) != len(kinds):
        raise InputError(f"{name} takes {len(kinds)} arguments, not {len(arguments)}")
    return [_convert(name, kind, argument) for kind, argument in zip(kinds, arguments, strict=True)]


def _convert(name: str, kind: Kind, argument: Argument) -> int | float | None:
    if kind.formats:
        return _address(name, kind, argument)
    try:
        if kind is DOUBLE:
            return float(argument)  # type: ignore[arg-type]
        number = operator.index(argument)  # type: ignore[arg-type]
    except (TypeError, ValueError):
        raise InputError(f"{name}: {kind.spelling} must be a number, not {argument!r}") from None
    if not -(2**63) <= number < 2**63:
        raise InputError(f"{name}: int64_t must be within 64 bits, not {number}")
    return number


def _address(name: str, kind: Kind, argument: Argument) -> int | None:
    if argument is None and kind.optional:
        return None
    if not isinstance(argument, Tensor):
        raise InputError(f"{name}: {kind.spelling} must be a tensor, not {argument!r}")
    if argument.dtype not in kind.formats or argument.device.type != "cpu":
        formats = " or ".join(str(dtype).removeprefix("torch.") for dtype in kind.formats)
        found = f"{str(argument.dtype).removeprefix('torch.')} on {argument.device}"
        raise InputError(f"{name}: {kind.spelling} must be {formats} on the CPU, not {found}")
    address = argument.data_ptr()
    if address == 0 and argument.numel() > 0:
        raise InputError(f"{name}: a tensor of shape {tuple(argument.shape)} has no memory")
    return address
