"""Sinkhorn's plan in one pass a round: see ``assignment.c``."""

from __future__ import annotations

import torch
from torch import Tensor

from psco.kernels.build import call, columns, library

_LEAST = 64  # keys of the queue for a thread


def suits_plan(z: Tensor, queue: Tensor) -> bool:
    """Say whether `ranked_plan` takes these keys (N, d) and this queue (M, d)."""
    single = z.dtype == queue.dtype == torch.float32
    if not single or z.device.type != "cpu" or library() is None:
        return False
    return len(z) % columns() == 0 and len(queue) >= _LEAST * torch.get_num_threads()


def ranked_plan(z: Tensor, queue: Tensor, epsilon: float, iterations: int) -> Tensor:
    """Give Sinkhorn's plan of exp(z @ queue.T / ε), up to a factor for each row.

    Parameters
    ----------
    z, queue
        (N, d) keys and (M, d) queue, of unit length; ε is at least 1/86.
    epsilon, iterations
        ε and the number of rounds, at least 1.

    Returns
    -------
    Tensor
        (N, M), stored by columns.
    """
    (N, d), M, threads = z.shape, len(queue), torch.get_num_threads()
    keys = (z / epsilon).view(-1, columns(), d).mT.contiguous()  # in the order of a product
    plan, u = torch.empty(M, N), torch.ones(N)
    for number in range(iterations):
        sums, last = torch.zeros(threads, N), int(number == iterations - 1)
        if number == 0:
            of_keys = (queue.contiguous(), keys)
            call("assignment_begin", *of_keys, u, plan, sums, last, M, N, d, threads)
        else:
            call("assignment_round", plan, u, sums, last, M, N, threads)
        u = 1 / (N * sums.sum(dim=0))
    return plan.T


def largest_column(scores: Tensor) -> Tensor | None:
    """Give the column (N,) of the largest score of every row, of equal ones the first.

    None if the scores (N, M) are not stored by columns in single precision on a CPU.
    """
    (N, M), stored = scores.shape, scores.T.is_contiguous()
    usual = stored and scores.dtype == torch.float32 and scores.device.type == "cpu"
    if not usual or library() is None or N % columns() or M >= 1 << 31:
        return None
    lines = torch.empty(N, dtype=torch.int64)
    call("assignment_largest", scores, lines, M, N, torch.get_num_threads())
    return lines
