"""A vote of the nearest supports: the paper's rule for self-supervised networks."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor

from psco.errors import InputError
from psco.evaluation.rules.rule import Embeddings, SupportSet


@dataclass(frozen=True)
class Neighbours:
    """One vote for each of the k nearest supports, by cosine on the backbone's features.

    Parameters
    ----------
    k
        Number of votes, at least 1; None for the shots of the task, or of its smallest class.
    """

    k: int | None = None
    transductive: ClassVar[bool] = False

    def __call__(self, support: SupportSet, query: Embeddings) -> Tensor:
        """Return numbers of votes (T, Q, N); the lowest class wins a tie.

        Raises
        ------
        InputError
            If a task has fewer than k supports.
        """
        labels, ways = support.labels, support.ways
        T, S = labels.shape
        if self.k is None:
            voters = F.one_hot(labels, ways).sum(dim=1).amin(dim=1)  # (T,)
        elif 1 <= self.k <= S:
            voters = labels.new_full((T,), self.k)
        else:
            raise InputError(f"k must be between 1 and the {S} supports of a task, got {self.k}")

        q = F.normalize(query.features, dim=-1)  # (T, Q, width)
        s = F.normalize(support.embeddings.features, dim=-1)  # (T, S, width)
        near = (q @ s.mT).topk(int(voters.max()), dim=2).indices  # (T, Q, k)
        classes = labels[:, None].expand(-1, q.shape[1], -1).gather(2, near)  # (T, Q, k)
        # Tasks may differ in k: neighbours beyond the k of a task do not vote.
        rank = torch.arange(near.shape[2], device=labels.device)
        votes = (rank < voters[:, None, None]).to(q.dtype).expand(near.shape)  # (T, Q, k)
        return q.new_zeros(*near.shape[:2], ways).scatter_add_(2, classes, votes)
