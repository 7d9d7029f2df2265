"""The contrast of queries with keys, with its gradient, in one pass: see ``contrast.c``."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from psco.ops.native.build import call, columns, floats, library, size_of


def suits_contrast(q: Tensor, keys: Tensor) -> bool:
    """Say whether `contrast_keys` takes these queries (N, d) and keys (M, d)."""
    single = q.dtype == keys.dtype == torch.float32 and q.device.type == "cpu"
    if not single or library() is None:
        return False
    N, d = q.shape
    return N % columns() == d % columns() == len(keys) % _block() == 0


def contrast_keys(
    q: Tensor, target: Tensor, keys: Tensor, temperature: float, own: bool
) -> tuple[Tensor, Tensor]:
    """Give the mean of log Σ_m exp(q_n · k_m / τ) − q_n · t_n / τ, and its gradient (N, d).

    Parameters
    ----------
    q, target
        (N, d) queries, of unit length, and what they are drawn to, t.
    keys
        (M, d), k, of unit length.
    temperature
        τ, at least 1/80.
    own
        Whether t_n is one more key of q_n.
    """
    (N, d), M, threads = q.shape, len(keys), torch.get_num_threads()
    scale = math.log2(math.e) / temperature  # powers of two are less work than those of e
    loss, gradient = floats(), floats(N, d)
    given = (q.contiguous(), target.contiguous(), keys.contiguous(), scale, int(own))
    found = (loss, gradient, floats(size_of("contrast_scratch", N, d, threads)))
    call("contrast_keys", *given, *found, N, M, d, threads)
    return loss, gradient


def _block() -> int:
    return size_of("contrast_block")
