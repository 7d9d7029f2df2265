"""Two linear layers with BatchNorm and ReLU between them, panel by panel: see ``heads.c``."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from psco.ops.native.build import call, columns, floats, library, scratch, size_of

_LEAST = 8  # rows of a product


class Hidden(NamedTuple):
    """The hidden units: normalised, by panels, and their statistics."""

    units: Tensor  # (h / P, N, P)
    mean: Tensor  # (h,)
    variance: Tensor  # (h,), biased


def suits_mlp(x: Tensor, first: Tensor, second: Tensor) -> bool:
    """Say whether `mlp` takes x (N, a) and the weights (h, a) and (o, h)."""
    single = x.dtype == first.dtype == second.dtype == torch.float32 and x.device.type == "cpu"
    if not single or x.ndim != 2 or library() is None:
        return False
    (N, a), (o, h) = x.shape, second.shape
    return N >= _LEAST and h % _panel() == a % columns() == o % columns() == 0


def mlp(
    x: Tensor, first: Tensor, scale: Tensor, shift: Tensor, second: Tensor, eps: float
) -> tuple[Tensor, Hidden]:
    """Give relu(norm(x @ first.T)) @ second.T, (N, o), with the statistics of the batch.

    Parameters
    ----------
    x
        (N, a).
    first, second
        (h, a) and (o, h).
    scale, shift, eps
        (h,) of BatchNorm, and its epsilon.
    """
    (N, a), (o, h), threads = x.shape, second.shape, torch.get_num_threads()
    units = floats(h // _panel(), N, _panel())
    mean, variance, out = floats(h), floats(h), floats(N, o)
    given = (x.contiguous(), first.contiguous(), scale, shift, second.contiguous(), eps)
    found = (units, mean, variance, out, scratch("mlp_scratch", N, a, o))
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
    """Give the gradients of x (or None, if it is not needed), first, scale, shift and second.

    Parameters
    ----------
    x, first, scale, shift, second, eps
        As of `mlp`.
    hidden, gradient
        What it gave, and the gradient (N, o) of its output.
    """
    (N, a), (o, h), threads = x.shape, second.shape, torch.get_num_threads()
    d_x = floats(N, a) if need_input else None
    d_first, d_second = floats(h, a), floats(o, h)
    d_scale, d_shift = floats(h), floats(h)
    given = (x.contiguous(), first.contiguous(), scale, shift, second.contiguous(), eps)
    known = (hidden.units, hidden.variance, gradient.contiguous())
    wanted = (d_x, d_first, d_scale, d_shift, d_second, scratch("mlp_scratch", N, a, o))
    call("mlp_backward", *given, *known, *wanted, N, a, h, o, threads)
    return d_x, d_first, d_scale, d_shift, d_second


def _panel() -> int:
    return size_of("mlp_panel")
