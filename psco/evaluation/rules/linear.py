"""The linear probe of the paper's cross-domain tables: a new layer on frozen features."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor

from psco.evaluation.rules.rule import Embeddings, SupportSet
from psco.evaluation.rules.sgd import decay_factors, start_sgd, step_rows
from psco.views import step_generator

_BATCH = 4


@dataclass(frozen=True)
class ProbeScores:
    """A trained probe: its weights are ``decay`` · ``start`` plus a combination of the supports.

    Parameters
    ----------
    start, decay
        (T, width + 1, N) initial weights, and the factor that weight decay has left of them.
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
    """Softmax regression on the backbone's features, trained by SGD on batches of 4 supports.

    Every task has its own initial weights and its own order of supports. The inputs of the layer
    never change, so its weights stay W₀ plus a combination of the supports. Training therefore
    needs only the inner products of the supports, and updates S coefficients per class whatever
    the width of the features.

    Parameters
    ----------
    epochs
        Passes over the supports, each in a new order; an incomplete last batch is dropped.
    seed
        With the number of the task, decides its initial weights and orders.
    """

    epochs: int = 100
    seed: int = 0
    transductive: ClassVar[bool] = False

    def __call__(self, support: SupportSet, query: Embeddings) -> Tensor:
        """Return logits (T, Q, N)."""
        return self.fit(support)(query)

    @torch.no_grad()
    def fit(self, support: SupportSet) -> ProbeScores:
        """Train the layer of each task."""
        x = _with_ones(support.embeddings.features)  # (T, S, width + 1)
        T, S, inputs = x.shape
        ways, batch = support.ways, min(_BATCH, S)
        target = F.one_hot(support.labels, ways).to(x.dtype)  # (T, S, N)
        numbers = range(support.first, support.first + T)
        draws = [draw_start(self.seed, t, inputs, ways, self.epochs, S) for t in numbers]
        start = torch.stack([weights for weights, _ in draws]).to(x)  # (T, width + 1, N)
        orders = torch.stack([order for _, order in draws]).to(x.device)  # (T, epochs, S)
        batches = orders[:, :, : S - S % batch].reshape(T, -1, batch)  # (T, steps, batch)

        kernel, logits0 = x @ x.mT, x @ start  # (T, S, S), (T, S, N)
        coefficients = start_sgd(torch.zeros_like(target))  # (T, S, N)
        left = decay_factors(batches.shape[1])  # of W₀
        for step, rows in enumerate(batches.unbind(dim=1)):  # (T, batch)
            logits = torch.baddbmm(
                _rows(logits0, rows), _rows(kernel, rows), coefficients.value, beta=left[step]
            )  # (T, batch, N)
            error = (logits.softmax(dim=2) - _rows(target, rows)) / batch  # (T, batch, N)
            step_rows(coefficients, error, rows)
        return ProbeScores(start, left[-1], x, coefficients.value)


def draw_start(
    seed: int, task: int, inputs: int, ways: int, epochs: int, supports: int
) -> tuple[Tensor, Tensor]:
    """Draw what is random about one task: initial weights and the order of each epoch.

    Returns
    -------
    tuple
        Weights (inputs, ways), the last row being the bias, uniform within 1/√width as torch
        initialises a layer; and orders (epochs, supports).
    """
    random = step_generator(seed, task)
    bound = 1 / math.sqrt(inputs - 1)
    weights = (2 * torch.rand(inputs, ways, generator=random) - 1) * bound
    return weights, torch.rand(epochs, supports, generator=random).argsort(dim=1)


def _rows(table: Tensor, rows: Tensor) -> Tensor:  # (T, S, n) at (T, b) -> (T, b, n)
    return table.gather(1, rows[..., None].expand(-1, -1, table.shape[2]))


def _with_ones(features: Tensor) -> Tensor:  # the bias becomes one more weight
    return torch.cat([features, torch.ones_like(features[..., :1])], dim=-1)
