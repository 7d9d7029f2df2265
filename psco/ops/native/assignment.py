"""Sinkhorn's plan in one pass a round: see ``assignment.c``."""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor

from psco.ops.native.build import call, columns, floats, library, size_of


class Plan(NamedTuple):
    """Sinkhorn's plan, up to a factor for each row, that nobody has written down: kernel · v."""

    kernel: Tensor  # (M, N), exp(queue @ z.T / ε)
    v: Tensor  # (M,)
    maxima: Tensor  # (M / B, N), of the plan in blocks of B columns
    best: Tensor  # (N, 1) int64, the column of the largest entry, of equal ones the first

    @property
    def shape(self) -> torch.Size:
        """N and M."""
        return torch.Size(reversed(self.kernel.shape))

    def written(self) -> Tensor:
        """Give the plan as a matrix (N, M)."""
        return self.kernel.T * self.v


def suits_plan(z: Tensor, queue: Tensor) -> bool:
    """Say whether `plan_of` takes these keys (N, d) and this queue (M, d)."""
    single = z.dtype == queue.dtype == torch.float32 and z.device.type == "cpu"
    if not single or library() is None:
        return False
    N, d = z.shape
    return N % columns() == d % columns() == 0 and len(queue) % _block() == 0


def plan_of(z: Tensor, queue: Tensor, epsilon: float, iterations: int) -> Plan:
    """Run Sinkhorn's rounds on exp(z @ queue.T / ε).

    Parameters
    ----------
    z, queue
        (N, d) keys and (M, d) queue, of unit length.
    epsilon
        ε, at least 1/80.
    iterations
        Rounds, at least 1.
    """
    (N, d), M, threads = z.shape, len(queue), torch.get_num_threads()
    scale = math.log2(math.e) / epsilon  # powers of two are less work than those of e
    kernel, v, maxima = floats(M, N), floats(M), floats(M // _block(), N)
    best = torch.empty((N, 1), dtype=torch.int64, device="cpu")
    memory = floats(size_of("assignment_scratch", N, d, iterations, threads))
    found = (kernel, v, maxima, best, memory)
    of_keys = (queue.contiguous(), z.contiguous(), scale)
    call("assignment_plan", *of_keys, *found, M, N, d, iterations, threads)
    return Plan(kernel, v, maxima, best)


def _block() -> int:
    return size_of("assignment_block")
