"""Prototypes that the queries of a task refine together.

Not inductive: its accuracy must never be set beside that of rules that see one query at a time.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor

from psco.evaluation.rules.rule import Embeddings, Heads
from psco.ops.prototypes import prototypes

_TEMPERATURE = 0.1  # of cosines
_FITS = 5  # rounds of Sinkhorn
_MOST = 3  # times the shots of a class: what its queries may weigh


@dataclass(frozen=True)
class SoftSinkhorn:
    """Alternate between assigning the queries to the classes and moving the prototypes.

    Queries are assigned by Sinkhorn's algorithm. How many belong to a class is estimated, not
    assumed to be equal: the sum of their softmax predictions, plus one. A query weighs the square
    of what its two best classes differ by, and all those of a class at most three times its
    supports, so that doubtful queries and mistaken estimates do little harm.

    Parameters
    ----------
    rounds
        Times the prototypes move.
    """

    rounds: int = 5
    transductive: ClassVar[bool] = True

    def __call__(
        self,
        support: Embeddings,
        labels: Tensor,
        query: Embeddings,
        ways: int,
        heads: Heads | None = None,  # noqa: ARG002
    ) -> Tensor:
        """Give cosines (T, Q, N)."""
        members = F.one_hot(labels, ways).to(support.support.dtype)  # (T, S, N)
        shots = members.sum(dim=1, keepdim=True)  # (T, 1, N)
        sums = members.mT @ support.support  # (T, N, d)
        c = prototypes(support.support, labels, ways)  # (T, N, d)
        for _ in range(self.rounds):
            assigned = _assign(query.query @ c.mT / _TEMPERATURE)  # (T, Q, N)
            weights = assigned * _margin(assigned).square()
            most = _MOST * shots
            weights = weights * most / (weights.sum(dim=1, keepdim=True) + most)
            c = F.normalize(sums + weights.mT @ query.support, dim=2)
        return query.query @ c.mT


def _assign(logits: Tensor) -> Tensor:  # (T, Q, N) -> (T, Q, N)
    Q, N = logits.shape[1:]
    expected = logits.softmax(dim=2).sum(dim=1, keepdim=True) + 1  # (T, 1, N)
    log_size = (expected * Q / (Q + N)).log()  # of the classes, Q in total
    for _ in range(_FITS):
        logits = logits.log_softmax(dim=2)
        logits = logits - logits.logsumexp(dim=1, keepdim=True) + log_size
    return logits.softmax(dim=2)


def _margin(assigned: Tensor) -> Tensor:  # (T, Q, N) -> (T, Q, 1)
    if assigned.shape[2] == 1:
        return torch.ones_like(assigned)
    best = assigned.topk(2, dim=2).values
    return best[..., :1] - best[..., 1:]
