"""Selecting shots: the k best queue items of every pseudo-label."""

from __future__ import annotations

import torch
from torch import Tensor

from psco.errors import InputError
from psco.ops.ranks import gather
from psco.ops.sinkhorn import Plan

_BLOCK = 64  # columns
_MOST_BLOCKS = 32  # of a row that are searched in full; beyond this nothing is gained


@torch.no_grad()
def select_shots(
    plan: Tensor | Plan, k: int, sample: bool = False, generator: torch.Generator | None = None
) -> Tensor:
    """Select k different queue items for every pseudo-label.

    Parameters
    ----------
    plan
        (N, M) assignment; non-negative when ``sample`` is set.
    k
        Shots per row, 1 <= k <= M.
    sample
        Draw without replacement in proportion to the row instead of taking its k largest entries
        (the ablation's alternative to top-K).
    generator
        Source of the random numbers when ``sample`` is set.

    Returns
    -------
    Tensor
        (N, k) int64 indices into the queue, the most likely first.
    """
    M = plan.shape[1]
    if not 1 <= k <= M:
        raise InputError(f"shots must be between 1 and the queue size {M}, got {k}")
    if sample:  # the k largest of log p + Gumbel noise are k draws without replacement
        scores = plan.scores() if isinstance(plan, Plan) else plan
        noise = torch.empty_like(scores).exponential_(generator=generator)
        return top_k(scores.log() - noise.log(), k)
    return top_k(plan, k)


@torch.no_grad()
def shot_overlap(shots: Tensor, queue_size: int) -> Tensor:
    """Return the fraction of the selected shots that repeat another one.

    That is 1 − (distinct queue items among the shots) / (N K), over the shots (N, K) of all
    processes: 0 if no item was selected twice, and close to 1 if all pseudo-labels chose the same.
    """
    shots = gather(shots)
    taken = torch.zeros(queue_size, device=shots.device)
    taken.index_fill_(0, shots.flatten(), 1)
    return 1 - taken.sum() / shots.numel()


def top_k(scores: Tensor | Plan, k: int) -> Tensor:
    """Return the columns of the k largest scores of every row, the largest first.

    The k largest are in the k blocks of columns with the largest maxima, and finding maxima without
    their positions is several times faster than with them.

    Parameters
    ----------
    scores
        (N, M), stored by rows or by columns, or a plan.
    k
        1 <= k <= M.

    Returns
    -------
    Tensor
        (N, k) int64. For k = 1 and equal scores, the first.
    """
    plan = scores if isinstance(scores, Plan) else Plan(scores)
    if k == 1 and plan.best is not None:
        return plan.best
    M = plan.shape[1]
    if M % _BLOCK or k > min(_MOST_BLOCKS, M // _BLOCK):
        return _largest(plan.scores().contiguous(), k)
    maxima = _block_maxima(plan.scores()) if plan.block_maxima is None else plan.block_maxima
    size = M // maxima.shape[1]
    chosen = _largest(maxima, k)  # (N, k)
    columns = chosen[:, :, None] * size + torch.arange(size, device=chosen.device)  # (N, k, B)
    columns = columns.flatten(1)  # (N, kB)
    candidates = plan.kernel.gather(1, columns)
    if plan.column_factors is not None:
        candidates *= plan.column_factors[columns]
    return columns.gather(1, _largest(candidates, k))


def _block_maxima(scores: Tensor) -> Tensor:  # (N, M) -> (N, M / B)
    blocks = scores.view(len(scores), -1, _BLOCK)  # (N, M / B, B)
    if scores.T.is_contiguous():  # stored by columns: numbers of a row lie far apart
        return blocks.permute(1, 2, 0).amax(dim=1).T
    return blocks.amax(dim=2)


def _largest(scores: Tensor, k: int) -> Tensor:
    return scores.max(dim=1, keepdim=True).indices if k == 1 else scores.topk(k, dim=1).indices
