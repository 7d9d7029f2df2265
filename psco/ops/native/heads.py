"""Two linear layers with BatchNorm and ReLU between them, panel by panel: see ``heads.c``."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from psco.ops.native.build import call, columns, floats, library, scratch, size_of
from psco.ops.native.check import expect, require, single, whole

_LEAST = 8  # rows of a tile


class Hidden(NamedTuple):
    """The hidden units: normalised, by panels, and their statistics."""

    units: Tensor  # (h / P, N, P)
    mean: Tensor  # (h,)
    variance: Tensor  # (h,), biased


def supports_mlp(x: Tensor, first: Tensor, second: Tensor) -> bool:
    """Whether `mlp` takes x (N, a) and the weights (h, a) and (o, h)."""
    matrices = (x, first, second)
    if not single(*matrices) or any(m.ndim != 2 for m in matrices) or library() is None:
        return False
    (N, a), (o, h) = x.shape, second.shape
    tiles = whole(h, _panel()) and whole(a, columns()) and whole(o, columns())
    return tiles and whole(N) and N >= _LEAST and first.shape == (h, a)


def mlp(
    x: Tensor, first: Tensor, scale: Tensor, shift: Tensor, second: Tensor, eps: float
) -> tuple[Tensor, Hidden]:
    """Return relu(norm(x @ first.T)) @ second.T, (N, o), with the statistics of the batch.

    Parameters
    ----------
    x
        (N, a).
    first, second
        (h, a) and (o, h).
    scale, shift, eps
        (h,) of BatchNorm, and its epsilon.

    Raises
    ------
    InputError
        If `supports_mlp` is false or a shape is not as above.
    """
    given = (*_layers("mlp", x, first, scale, shift, second), eps)
    (N, a), (o, h), threads = x.shape, second.shape, torch.get_num_threads()
    units = floats(h // _panel(), N, _panel())
    mean, variance, out = floats(h), floats(h), floats(N, o)
    found = (units, mean, variance, out, scratch(threads, "mlp_scratch", N, a, o))
    call("mlp_forward", *given, *found, N, a, h, o, threads)
    return out, Hidden(units, mean, variance)


def mlp_back(
    x: Tensor,
    first: Tensor,
    scale: Tensor,
    shift: Tensor,
    second: Tensor,
    eps: float,
    hidden: Hidden,
    gradient: Tensor,
    need_input: bool,
) -> tuple[Tensor | None, Tensor, Tensor, Tensor, Tensor]:
    """Return the gradients of x (or None, if it is not needed), first, scale, shift and second.

    Parameters
    ----------
    x, first, scale, shift, second, eps
        As of `mlp`.
    hidden, gradient
        What it returned, and the upstream gradient (N, o).

    Raises
    ------
    InputError
        If `supports_mlp` is false or a shape is not as above.
    """
    given = (*_layers("mlp_back", x, first, scale, shift, second), eps)
    (N, a), (o, h), threads = x.shape, second.shape, torch.get_num_threads()
    known = (
        expect("units", hidden.units, (h // _panel(), N, _panel())),
        expect("variance", hidden.variance, (h,)),
        expect("the gradient", gradient, (N, o)),
    )
    d_x = floats(N, a) if need_input else None
    d_first, d_second = floats(h, a), floats(o, h)
    d_scale, d_shift = floats(h), floats(h)
    wanted = (d_x, d_first, d_scale, d_shift, d_second, scratch(threads, "mlp_scratch", N, a, o))
    call("mlp_backward", *given, *known, *wanted, N, a, h, o, threads)
    return d_x, d_first, d_scale, d_shift, d_second


def _layers(
    name: str, x: Tensor, first: Tensor, scale: Tensor, shift: Tensor, second: Tensor
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    allowed = "float32 x (N, a) and weights (h, a) and (o, h) on cpu, in multiples of its tiles"
    require(supports_mlp(x, first, second), name, allowed, x, first, second)
    (N, a), (o, h) = x.shape, second.shape
    return (
        expect("x", x, (N, a)),
        expect("first", first, (h, a)),
        expect("scale", scale, (h,)),
        expect("shift", shift, (h,)),
        expect("second", second, (o, h)),
    )


def _panel() -> int:
    return size_of("mlp_panel")
