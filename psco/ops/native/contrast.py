"""The contrast of queries with keys, with its gradient, in one pass: see ``contrast.c``."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from psco.ops.native.build import call, columns, floats, library, size_of
from psco.ops.native.check import at_least, expect, require, single, whole


def supports_contrast(q: Tensor, target: Tensor, keys: Tensor) -> bool:
    """Whether `contrast_keys` takes these queries and targets (N, d) and keys (M, d)."""
    if not single(q, target, keys) or q.ndim != 2 or keys.ndim != 2 or library() is None:
        return False
    (N, d), M = q.shape, len(keys)
    tiles = whole(N, columns()) and whole(d, columns()) and whole(M, _block())
    return tiles and target.shape == q.shape and keys.shape[1] == d


def contrast_keys(
    q: Tensor, target: Tensor, keys: Tensor, temperature: float, own: bool
) -> tuple[Tensor, Tensor]:
    """Return the mean of log Σ_m exp(q_n · k_m / τ) − q_n · t_n / τ, and its gradient (N, d).

    Parameters
    ----------
    q, target
        (N, d) queries, of unit length, and the targets t.
    keys
        (M, d), k, of unit length.
    temperature
        τ, at least 1/80.
    own
        Whether t_n is one more key of q_n.

    Raises
    ------
    InputError
        If `supports_contrast` is false or the temperature is out of range.
    """
    allowed = "float32 q and target (N, d) and keys (M, d) on cpu, in multiples of its tiles"
    given = (q, target, keys)
    require(supports_contrast(*given), "contrast_keys", allowed, *given)
    (N, d), M, threads = q.shape, len(keys), torch.get_num_threads()
    scale = math.log2(math.e) / at_least("temperature", temperature, 1 / 80)  # for powers of two
    loss, gradient = floats(), floats(N, d)
    vectors = (expect("q", q, (N, d)), expect("target", target, (N, d)))
    known = (*vectors, expect("keys", keys, (M, d)), scale, int(own))
    found = (loss, gradient, floats(size_of("contrast_scratch", N, d, threads)))
    call("contrast_keys", *known, *found, N, M, d, threads)
    return loss, gradient


def _block() -> int:
    return size_of("contrast_block")
