"""Votes of the nearest supports: how the paper tests networks of self-supervised learning."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor

from psco.errors import InputError
from psco.evaluation.rules.rule import Embeddings, Heads


@dataclass(frozen=True)
class Neighbours:
    """Each of the k supports nearest by cosine, on the backbone's features, has one vote.

    Parameters
    ----------
    k
        Neighbours that vote, at least 1; None for as many as the rarest class of the task has
        shots.
    """

    k: int | None = None
    transductive: ClassVar[bool] = False

    def __call__(
        self,
        support: Embeddings,
        labels: Tensor,
        query: Embeddings,
        ways: int,
        heads: Heads | None = None,  # noqa: ARG002
    ) -> Tensor:
        """Give numbers of votes (T, Q, N); the lowest class wins a draw.

        Raises
        ------
        InputError
            If a task has no k supports.
        """
        T, S = labels.shape
        if self.k is None:
            voters = F.one_hot(labels, ways).sum(dim=1).amin(dim=1)  # (T,)
        elif 1 <= self.k <= S:
            voters = labels.new_full((T,), self.k)
        else:
            raise InputError(f"k must be between 1 and the {S} supports of a task, not {self.k}")

        q = F.normalize(query.features, dim=-1)  # (T, Q, width)
        s = F.normalize(support.features, dim=-1)  # (T, S, width)
        near = (q @ s.mT).topk(int(voters.max()), dim=2).indices  # (T, Q, k)
        classes = labels[:, None].expand(-1, q.shape[1], -1).gather(2, near)  # (T, Q, k)
        # Tasks may differ in k: the neighbours beyond a task's own have no vote.
        rank = torch.arange(near.shape[2], device=labels.device)
        votes = (rank < voters[:, None, None]).to(q.dtype).expand(near.shape)  # (T, Q, k)
        return q.new_zeros(*near.shape[:2], ways).scatter_add_(2, classes, votes)
