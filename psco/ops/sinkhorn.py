"""Sinkhorn's algorithm, Eq. (4): the plain form, forms for long queues, and the choice.

`sinkhorn` takes a matrix of similarities and returns the transport plan as a matrix. Training calls
it with a `Similarity`, which has not been computed yet, and gets a `Plan`, which has not been
written down: selecting shots needs to know only which entries of a row are the largest, so a factor
for each row and several passes over the (N, M) matrix can be saved.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple, overload

import torch
from torch import Tensor

from psco.errors import InputError
from psco.ops.native import plan_of, supports_plan
from psco.ops.ranks import all_max, all_sum, gather, unchanged, world_size


class Similarity(NamedTuple):
    """The cosines z @ queue.T (N, M) of unit vectors, computed on demand.

    With several processes z has the rows of one of them, and sums over columns are sums over all.
    """

    z: Tensor  # (N, d)
    queue: Tensor  # (M, d)

    def over(self, epsilon: float) -> Tensor:
        """Return z @ queue.T / ε (N, M), stored by columns.

        Dividing the keys takes no pass over the matrix, and the product is faster this way round.
        """
        return (self.queue @ (self.z / epsilon).T).T


@dataclass(frozen=True)
class Plan:
    """A transport plan (N, M) up to a positive factor for each row.

    Parameters
    ----------
    kernel
        (N, M) non-negative.
    column_factors
        (M,) factors that the columns of ``kernel`` have yet to be multiplied with, if any.
    block_maxima
        (N, M / B) largest entries of the plan in blocks of B columns, if known.
    best
        (N, 1) int64 column of the largest entry, the first of equal ones, if known.
    """

    kernel: Tensor
    column_factors: Tensor | None = None
    block_maxima: Tensor | None = None
    best: Tensor | None = None

    @property
    def shape(self) -> torch.Size:
        """N and M."""
        return self.kernel.shape

    def scores(self) -> Tensor:
        """Return the plan (N, M) without the factors of its rows."""
        return self.kernel if self.column_factors is None else self.kernel * self.column_factors

    def dense(self) -> Tensor:
        """Return the plan as a matrix (N, M) whose rows sum to 1/N."""
        scores = self.scores()
        return scores / (scores.sum(dim=1, keepdim=True) * len(scores))


@overload
def sinkhorn(similarity: Tensor, epsilon: float = ..., iterations: int = ...) -> Tensor: ...
@overload
def sinkhorn(similarity: Similarity, epsilon: float = ..., iterations: int = ...) -> Plan: ...
@torch.no_grad()
def sinkhorn(
    similarity: Tensor | Similarity, epsilon: float = 0.05, iterations: int = 3
) -> Tensor | Plan:
    """Solve the entropy-regularised assignment of Eq. (4), approximately, by Sinkhorn-Knopp.

    Finds P = diag(u) exp(similarity / ε) diag(v) by alternately fitting the columns (v) and the
    rows (u) to their marginals. Only the two scaling vectors change from round to round.

    Parameters
    ----------
    similarity
        (N, M) finite numbers of any size and floating type, or cosines yet to be computed.
    epsilon
        Weight ε > 0 of the entropy: smaller is closer to a hard assignment.
    iterations
        Rounds of (columns, rows), at least 1.

    Returns
    -------
    Tensor or Plan
        (N, M) transport plan, non-negative: every row sums to 1/N, every column approaches 1/M.
        float64 for float64 input, else float32, as half precision cannot hold 1/(NM). For a
        `Similarity`, a `Plan`.
    """
    if epsilon <= 0:
        raise InputError(f"epsilon must be > 0, got {epsilon}")
    if iterations < 1:
        raise InputError(f"iterations must be at least 1, got {iterations}")
    if isinstance(similarity, Similarity):
        return _plan_of_cosines(similarity, epsilon, iterations)
    sim = _at_least_single(similarity)
    top = sim.max()
    if not _is_safe(float(top.double() - sim.min().double()) / epsilon, sim.dtype):
        return _log_sinkhorn(sim, epsilon, iterations)
    kernel = (sim - top).div_(epsilon).exp_()  # (N, M)
    v = _column_factors(kernel, iterations)  # (M,)
    u = _row_factors(kernel, v)  # (N,)
    return kernel.mul_(u[:, None]).mul_(v)


def _plan_of_cosines(similarity: Similarity, epsilon: float, iterations: int) -> Plan:
    """Return the plan of cosines, whose range need not be measured: they differ by 2 at most."""
    z, queue = similarity
    span = 2 / epsilon
    if world_size() == 1 and _is_safe(span, z.dtype) and supports_plan(z, queue, iterations):
        found = plan_of(z, queue, epsilon, iterations)
        return Plan(found.kernel.T, found.v, found.maxima.T, found.best)
    scaled = _at_least_single(similarity.over(epsilon))  # (N, M)
    if not _is_safe(span, scaled.dtype):
        return Plan(_log_sinkhorn(scaled, 1.0, iterations, shared=True))
    kernel = scaled.exp_()
    return Plan(kernel.mul_(_column_factors(kernel, iterations, shared=True)))


def _at_least_single(x: Tensor) -> Tensor:
    return x if x.dtype == torch.float64 else x.float()


def _column_factors(kernel: Tensor, iterations: int, shared: bool = False) -> Tensor:
    """Return v (M,) after ``iterations`` rounds.

    With ``shared``, each process has some rows of the kernel, and sums over columns are sums over
    all processes.
    """
    N, M = kernel.shape
    total = all_sum if shared else unchanged
    u, v = kernel.new_ones(N), kernel.new_empty(M)
    for number in range(iterations):
        if number > 0:
            u = _row_factors(kernel, v)
        v = 1 / (M * total(kernel.T @ u))
    return v


def _row_factors(kernel: Tensor, v: Tensor) -> Tensor:
    """Return u (N,) such that the rows of diag(u) kernel diag(v) sum to 1/N."""
    return 1 / (len(kernel) * (kernel @ v))


def _is_safe(span: float, dtype: torch.dtype) -> bool:
    """Whether the factors stay finite if similarities / ε differ by ``span`` at most."""
    # The kernel spans exp(span), and its product with u or v may span that once more.
    return span <= -0.47 * math.log(torch.finfo(dtype).tiny)


def _log_sinkhorn(
    similarity: Tensor, epsilon: float, iterations: int, shared: bool = False
) -> Tensor:
    """Run the same rounds on logarithms in double precision: slow, and safe for any numbers."""
    N, M = similarity.shape
    gather_rows, largest = (gather, all_max) if shared else (unchanged, unchanged)
    sim = similarity.double().clamp(-1e300, 1e300)
    log_kernel = (sim - largest(sim.max())) / epsilon  # (N, M)
    log_u = torch.zeros_like(log_kernel[:, :1])  # (N, 1)
    log_v = torch.zeros_like(log_kernel[:1])  # (1, M)
    for _ in range(iterations):
        column = (log_kernel + log_u).logsumexp(dim=0, keepdim=True)
        log_v = -gather_rows(column).logsumexp(dim=0, keepdim=True) - math.log(M)
        log_u = -(log_kernel + log_v).logsumexp(dim=1, keepdim=True) - math.log(N)
    # The last row step is a softmax, which sums to one whatever has been rounded away before.
    return ((log_kernel + log_v).softmax(dim=1) / N).to(similarity.dtype)
