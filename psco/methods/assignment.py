"""The numerics of assigning queue items to pseudo-labels: Sinkhorn's rounds, largest entries.

What is computed is said in ``psco.methods.psco``; here is how it takes few passes over the (N, M)
matrix, and how it stays finite for any similarities.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from psco.errors import InputError
from psco.kernels import Plan, plan_of, supports_plan
from psco.ranks import all_max, all_sum, alone, gather, world_size

_BLOCK = 64  # columns
_MOST_BLOCKS = 32  # of a row that are looked at in full; beyond it nothing is gained


def scaled_similarity(z: Tensor, queue: Tensor, epsilon: float) -> Tensor:
    """Give z @ queue.T / ε (N, M) of keys (N, d) and the queue (M, d), stored by columns.

    To divide the keys takes no pass over the matrix, and the product is quicker this way round.
    """
    return (queue @ (z / epsilon).T).T


@torch.no_grad()
def ranking_plan(
    z: Tensor, queue: Tensor, epsilon: float, iterations: int, shared: bool = False
) -> Tensor | Plan:
    """Return the plan of `sinkhorn` for z @ queue.T, up to a factor for each row.

    Which entries of a row are the largest, and in which proportion, is all that the selection of
    shots asks for.

    Parameters
    ----------
    z, queue
        (N, d) keys and (M, d) queue, of unit length.
    epsilon, iterations
        As of `sinkhorn`.
    shared
        Whether each process has some of the rows of the plan: sums over columns are then sums over
        all processes.

    Returns
    -------
    Tensor or Plan
        (N, M); for `largest_columns`, or `written` as a matrix.
    """
    if iterations < 1:
        raise InputError(f"iterations must be at least 1, not {iterations}")
    span, here = 2 / epsilon, not shared or world_size() == 1
    if here and fits(span, z.dtype) and supports_plan(z, queue, iterations):
        return plan_of(z, queue, epsilon, iterations)
    return rank_by_plan_(scaled_similarity(z, queue, epsilon), span, iterations, shared)


def written(plan: Tensor | Plan) -> Tensor:
    """Give a plan as a matrix (N, M)."""
    return plan.written() if isinstance(plan, Plan) else plan


@torch.no_grad()
def rank_by_plan_(scaled: Tensor, span: float, iterations: int, shared: bool = False) -> Tensor:
    """Overwrite similarities / ε by the plan of `sinkhorn`, up to a factor for each row.

    Where it is known how far similarities can differ nothing has to be measured first, so this
    takes four passes over the matrix less.

    Parameters
    ----------
    scaled
        (N, M), similarities / ε.
    span
        By how much they differ at most: 2 / ε for cosines.
    iterations
        Sinkhorn's rounds.
    shared
        Whether each process has some of the rows of the plan: sums over columns are then sums over
        all processes.

    Returns
    -------
    Tensor
        (N, M), in the same memory where the numbers allow it.
    """
    sim = scaled if scaled.dtype == torch.float64 else scaled.float()  # half is too coarse
    if not fits(span, sim.dtype):
        return log_sinkhorn(sim, 1.0, iterations, shared)
    kernel = sim.exp_()  # (N, M)
    return kernel.mul_(column_factors(kernel, iterations, shared))


def column_factors(kernel: Tensor, iterations: int, shared: bool = False) -> Tensor:
    """Give v (M,) after so many rounds: with `row_factors`, diag(u) kernel diag(v) is the plan."""
    N, M = kernel.shape
    total = all_sum if shared else alone
    u, v = kernel.new_ones(N), kernel.new_empty(M)
    for number in range(iterations):
        if number > 0:
            u = row_factors(kernel, v)
        v = 1 / (M * total(kernel.T @ u))
    return v


def row_factors(kernel: Tensor, v: Tensor) -> Tensor:
    """Give u (N,) such that the rows of diag(u) kernel diag(v) sum to 1/N."""
    return 1 / (len(kernel) * (kernel @ v))


def fits(span: float, dtype: torch.dtype) -> bool:
    """Say whether the factors stay finite if similarities / ε differ by ``span`` at most."""
    # The kernel spans exp(span), and its product with u or v may span that once more.
    return span <= -0.47 * math.log(torch.finfo(dtype).tiny)


def log_sinkhorn(
    similarity: Tensor, epsilon: float, iterations: int, shared: bool = False
) -> Tensor:
    """Run the same rounds on logarithms in double precision: slow, and always safe."""
    N, M = similarity.shape
    everyone, most = (gather, all_max) if shared else (alone, alone)
    sim = similarity.double().clamp(-1e300, 1e300)
    log_kernel = (sim - most(sim.max())) / epsilon  # (N, M)
    log_u = torch.zeros_like(log_kernel[:, :1])  # (N, 1)
    log_v = torch.zeros_like(log_kernel[:1])  # (1, M)
    for _ in range(iterations):
        column = (log_kernel + log_u).logsumexp(dim=0, keepdim=True)
        log_v = -everyone(column).logsumexp(dim=0, keepdim=True) - math.log(M)
        log_u = -(log_kernel + log_v).logsumexp(dim=1, keepdim=True) - math.log(N)
    # The last row step is a softmax, which sums to one whatever has been rounded away before.
    return ((log_kernel + log_v).softmax(dim=1) / N).to(similarity.dtype)


def largest_columns(scores: Tensor | Plan, k: int) -> Tensor:
    """Give the columns of the k largest scores of every row, the largest first.

    The k largest are in the k blocks of columns that have the largest maxima, and maxima without
    their places are found several times faster than with them.

    Parameters
    ----------
    scores
        (N, M), stored by rows or by columns, or a plan.
    k
        1 <= k <= M.

    Returns
    -------
    Tensor
        (N, k) int64. For k = 1, of equal scores the first.
    """
    if k == 1 and isinstance(scores, Plan):
        return scores.best
    if scores.shape[1] % _BLOCK or k > min(_MOST_BLOCKS, scores.shape[1] // _BLOCK):
        return _largest(written(scores).contiguous(), k)
    if isinstance(scores, Plan):
        v, maxima, scores = scores.v, scores.maxima.T, scores.kernel.T
    else:
        v, maxima = None, _block_maxima(scores)
    size = scores.shape[1] // maxima.shape[1]
    chosen = _largest(maxima, k)  # (N, k)
    columns = chosen[:, :, None] * size + torch.arange(size, device=chosen.device)  # (N, k, B)
    columns = columns.flatten(1)  # (N, kB)
    candidates = scores.gather(1, columns)
    if v is not None:
        candidates *= v[columns]
    return columns.gather(1, _largest(candidates, k))


def _block_maxima(scores: Tensor) -> Tensor:  # (N, M) -> (N, M / B)
    blocks = scores.view(len(scores), -1, _BLOCK)  # (N, M / B, B)
    if scores.T.is_contiguous():  # stored by columns: numbers of a row lie far apart
        return blocks.permute(1, 2, 0).amax(dim=1).T
    return blocks.amax(dim=2)


def _largest(scores: Tensor, k: int) -> Tensor:
    return scores.max(dim=1, keepdim=True).indices if k == 1 else scores.topk(k, dim=1).indices
