"""The linear probe of the paper's cross-domain tables: a new layer on frozen features."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor

from psco.evaluation.rules.rule import Embeddings, Heads
from psco.evaluation.rules.sgd import remains, step_rows, trained

_BATCH = 4


@dataclass(frozen=True)
class ProbeScores:
    """A trained probe: the weights are ``decay`` · ``start`` plus a combination of the supports.

    Parameters
    ----------
    start, decay
        (width + 1, N) initial weights, and the fraction of them that weight decay has left.
    support, coefficients
        (T, S, width + 1) inputs and (T, S, N) their coefficients.
    """

    start: Tensor
    decay: float
    support: Tensor
    coefficients: Tensor

    @torch.no_grad()
    def __call__(self, query: Embeddings) -> Tensor:
        """Return the logits (T, Q, N) of queries (T, Q)."""
        x = _with_ones(query.features)  # (T, Q, width + 1)
        return torch.baddbmm(
            x @ self.start, x @ self.support.mT, self.coefficients, beta=self.decay
        )


@dataclass(frozen=True)
class LinearProbe:
    """Softmax regression from the backbone's features, trained by SGD on batches of 4 supports.

    The inputs of the layer never change, so its weights are W₀ plus a combination of the supports,
    and its outputs for the supports need their inner products only: training goes on in S numbers
    for a class, whatever the width. Initial weights and the order of the supports are the same for
    every task, so that no task depends on its companions.

    Parameters
    ----------
    epochs
        Passes over the supports, each in a new order and without an incomplete last batch.
    seed
        Decides the initial weights, uniform as torch's, and the orders.
    """

    epochs: int = 100
    seed: int = 0
    transductive: ClassVar[bool] = False

    def __call__(
        self,
        support: Embeddings,
        labels: Tensor,
        query: Embeddings,
        ways: int,
        heads: Heads | None = None,  # noqa: ARG002
    ) -> Tensor:
        """Give logits (T, Q, N)."""
        return self.fit(support, labels, ways)(query)

    @torch.no_grad()
    def fit(self, support: Embeddings, labels: Tensor, ways: int) -> ProbeScores:
        """Train the layer of each task."""
        x = _with_ones(support.features)  # (T, S, width + 1)
        S = x.shape[1]
        batch = min(_BATCH, S)
        target = F.one_hot(labels, ways).to(x.dtype)  # (T, S, N)
        random = torch.Generator().manual_seed(self.seed)
        start = self._start(x.shape[2], ways, random).to(x)  # (width + 1, N)

        kernel, logits0 = x @ x.mT, x @ start  # (T, S, S), (T, S, N)
        coefficients = trained(torch.zeros_like(target))  # (T, S, N)
        left = remains(self.epochs * (S // batch))
        step = 0
        for _ in range(self.epochs):
            order = torch.randperm(S, generator=random).to(labels.device)
            for rows in order[: S - S % batch].view(-1, batch):
                logits = torch.baddbmm(
                    logits0[:, rows], kernel[:, rows], coefficients.value, beta=left[step]
                )  # (T, 4, N)
                error = (logits.softmax(dim=2) - target[:, rows]) / batch  # (T, 4, N)
                step_rows(coefficients, error, rows)
                step += 1
        return ProbeScores(start, left[step], x, coefficients.value)

    @staticmethod
    def _start(inputs: int, ways: int, random: torch.Generator) -> Tensor:
        # torch's default: weights and bias uniform within 1 / sqrt(width).
        bound = 1 / math.sqrt(inputs - 1)
        return (2 * torch.rand(inputs, ways, generator=random) - 1) * bound


def _with_ones(features: Tensor) -> Tensor:  # the bias as one more weight
    return torch.cat([features, torch.ones_like(features[..., :1])], dim=-1)
