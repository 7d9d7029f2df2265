"""Checks of tensors before their addresses go to C, which checks nothing."""

from __future__ import annotations

import math
import operator
from typing import SupportsIndex

import torch
from torch import Tensor, nn

from psco.errors import InputError

PLAIN = (Tensor, nn.Parameter)  # subclasses may keep their numbers elsewhere
_LIMIT = 2**31  # sizes are int inside the matrix products


def single(*tensors: Tensor) -> bool:
    """Whether all tensors are plain float32 on the CPU."""
    return all(
        type(t) in PLAIN
        and t.dtype == torch.float32
        and t.device.type == "cpu"
        and t.layout == torch.strided
        for t in tensors
    )


def whole(size: int, of: int = 1) -> bool:
    """Whether a size is a positive multiple of ``of`` that the kernels can count to."""
    return 0 < size < _LIMIT and size % of == 0


def require(supported: bool, name: str, allowed: str, *tensors: Tensor) -> None:
    """Raise unless a kernel supports these tensors.

    Raises
    ------
    InputError
        With the tensors as they are, and what is allowed.
    """
    if not supported:
        found = ", ".join(map(describe, tensors))
        raise InputError(f"{name} takes {allowed}, not {found}")


def expect(
    name: str,
    tensor: Tensor | None,
    shape: tuple[int, ...],
    dtype: torch.dtype = torch.float32,
    order: torch.memory_format = torch.contiguous_format,
) -> Tensor:
    """Return a tensor in contiguous memory.

    Parameters
    ----------
    name
        What an error calls it.
    tensor
        Any strides.
    shape, dtype
        What it must have.
    order
        Order of the numbers in memory.

    Raises
    ------
    InputError
        If its shape, number format or device is another one.
    """
    if (
        not isinstance(tensor, Tensor)
        or tensor.shape != shape
        or tensor.dtype != dtype
        or tensor.device.type != "cpu"
        or tensor.layout != torch.strided
    ):
        wanted = f"{str(dtype).removeprefix('torch.')} {shape} on cpu"
        found = describe(tensor) if isinstance(tensor, Tensor) else repr(tensor)
        raise InputError(f"{name} must be {wanted}, not {found}")
    return tensor.resolve_neg().contiguous(memory_format=order)


def describe(tensor: Tensor) -> str:
    """Return number format, shape and device in a few words."""
    return f"{str(tensor.dtype).removeprefix('torch.')} {tuple(tensor.shape)} on {tensor.device}"


def at_least(name: str, value: float, least: float) -> float:
    """Return a number as a float.

    Raises
    ------
    InputError
        If it is less than ``least`` or not finite.
    """
    number = float(value)
    if not least <= number < math.inf:
        raise InputError(f"{name} must be finite and at least {least}, not {value!r}")
    return number


def count(name: str, value: SupportsIndex, most: int = _LIMIT - 1) -> int:
    """Return a whole number from 1 to ``most`` as an int.

    Raises
    ------
    InputError
        If it is something else.
    """
    try:
        number = operator.index(value)
    except TypeError:
        number = 0
    if not 1 <= number <= most:
        raise InputError(f"{name} must be a whole number from 1 to {most}, not {value!r}")
    return number
