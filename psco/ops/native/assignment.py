"""Sinkhorn's plan in one pass per round: see ``assignment.c``."""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor

from psco.ops.native.build import call, columns, floats, library, size_of
from psco.ops.native.check import at_least, count, expect, require, single, whole

_MOST_ROUNDS = 10_000  # scratch memory grows with them


class Plan(NamedTuple):
    """Sinkhorn's plan, up to a factor for each row, not written out: kernel · v."""

    kernel: Tensor  # (M, N), exp(queue @ z.T / ε)
    v: Tensor  # (M,)
    maxima: Tensor  # (M / B, N), of the plan in blocks of B columns
    best: Tensor  # (N, 1) int64, the column of the largest entry, the first of equal ones

    @property
    def shape(self) -> torch.Size:
        """N and M."""
        return torch.Size(reversed(self.kernel.shape))

    def written(self) -> Tensor:
        """Return the plan as a matrix (N, M)."""
        return self.kernel.T * self.v


def supports_plan(z: Tensor, queue: Tensor, iterations: int) -> bool:
    """Whether `plan_of` takes these keys (N, d), this queue (M, d) and so many rounds."""
    if not single(z, queue) or z.ndim != 2 or queue.ndim != 2 or library() is None:
        return False
    (N, d), M = z.shape, len(queue)
    tiles = whole(N, columns()) and whole(d, columns()) and whole(M, _block())
    return tiles and queue.shape[1] == d and 1 <= iterations <= _MOST_ROUNDS


def plan_of(z: Tensor, queue: Tensor, epsilon: float, iterations: int) -> Plan:
    """Run Sinkhorn's rounds on exp(z @ queue.T / ε).

    Parameters
    ----------
    z, queue
        (N, d) keys and (M, d) queue, of unit length.
    epsilon
        ε, at least 1/80.
    iterations
        Rounds, from 1 to 10,000.

    Raises
    ------
    InputError
        If `supports_plan` is false or a number is out of range.
    """
    allowed = "float32 keys (N, d) and queue (M, d) on cpu, in multiples of its tiles"
    iterations = count("iterations", iterations, _MOST_ROUNDS)
    require(supports_plan(z, queue, iterations), "plan_of", allowed, z, queue)
    (N, d), M, threads = z.shape, len(queue), torch.get_num_threads()
    scale = math.log2(math.e) / at_least("epsilon", epsilon, 1 / 80)  # for powers of two
    kernel, v, maxima = floats(M, N), floats(M), floats(M // _block(), N)
    best = torch.empty((N, 1), dtype=torch.int64, device="cpu")
    memory = floats(size_of("assignment_scratch", N, d, iterations, threads))
    given = (expect("queue", queue, (M, d)), expect("z", z, (N, d)), scale)
    found = (kernel, v, maxima, best, memory)
    call("assignment_plan", *given, *found, M, N, d, iterations, threads)
    return Plan(kernel, v, maxima, best)


def _block() -> int:
    return size_of("assignment_block")
