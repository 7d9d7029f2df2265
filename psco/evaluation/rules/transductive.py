"""Prototypes refined by all queries of a task together.

A transductive rule: do not compare its accuracy with that of rules that see one query at a time.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor

from psco.evaluation.rules.rule import Embeddings, SupportSet

_TEMPERATURE = 0.1  # of cosines
_SINKHORN_ITERATIONS = 5
_LARGEST_WEIGHT = 3  # of all queries of a class, in units of its shots


@dataclass(frozen=True)
class SoftSinkhorn:
    """Alternately assign the queries to the classes and move the prototypes.

    Queries are assigned by Sinkhorn's algorithm. The number of queries in a class is estimated, not
    assumed to be equal: the sum of their softmax predictions, plus one. To limit the harm of
    doubtful queries and wrong estimates, a query is weighted by the squared margin between its two
    best classes, and all queries of a class weigh at most three times as much as its supports.

    Parameters
    ----------
    rounds
        How often the prototypes move.
    """

    rounds: int = 5
    transductive: ClassVar[bool] = True

    def __call__(self, support: SupportSet, query: Embeddings) -> Tensor:
        """Return cosines (T, Q, N)."""
        z = support.embeddings.support  # (T, S, d)
        members = F.one_hot(support.labels, support.ways).to(z.dtype)  # (T, S, N)
        limit = _LARGEST_WEIGHT * members.sum(dim=1, keepdim=True)  # (T, 1, N)
        sums = members.mT @ z  # (T, N, d)
        c = F.normalize(sums, dim=2)  # (T, N, d)
        for _ in range(self.rounds):
            assigned = _assign(query.query @ c.mT / _TEMPERATURE)  # (T, Q, N)
            weights = assigned * _margin(assigned).square()
            weights = weights * limit / (weights.sum(dim=1, keepdim=True) + limit)
            c = F.normalize(sums + weights.mT @ query.support, dim=2)
        return query.query @ c.mT


def _assign(logits: Tensor) -> Tensor:  # (T, Q, N) -> (T, Q, N)
    Q, N = logits.shape[1:]
    expected = logits.softmax(dim=2).sum(dim=1, keepdim=True) + 1  # (T, 1, N)
    log_size = (expected * Q / (Q + N)).log()  # of the classes, Q in total
    for _ in range(_SINKHORN_ITERATIONS):
        logits = logits.log_softmax(dim=2)
        logits = logits - logits.logsumexp(dim=1, keepdim=True) + log_size
    return logits.softmax(dim=2)


def _margin(assigned: Tensor) -> Tensor:  # (T, Q, N) -> (T, Q, 1)
    if assigned.shape[2] == 1:
        return torch.ones_like(assigned)
    best = assigned.topk(2, dim=2).values
    return best[..., :1] - best[..., 1:]
