"""Regularised regression on the backbone's features: for tasks with many shots.

Both rules see features of unit length, less the mean of the task's supports, in units of the
supports' root mean square distance from it. So a given regularisation means the same for every
network; the defaults are good on drawn characters, satellite images and plant leaves alike, for
networks that have seen characters only. Weights are combinations of the S supports, and all that
is solved for are S coefficients for a class.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor

from psco.errors import InputError
from psco.evaluation.rules.rule import Embeddings, Heads

_ROUNDS = 200  # of logistic regression


@dataclass(frozen=True)
class _StandardInputs:
    """Features of unit length, less ``centre`` (T, 1, width), divided by ``scale`` (T, 1, 1)."""

    centre: Tensor
    scale: Tensor

    @classmethod
    def of(cls, support: Tensor) -> _StandardInputs:
        """Take centre and scale from the supports (T, S, width)."""
        s = F.normalize(support, dim=-1)
        centre = s.mean(dim=1, keepdim=True)  # (T, 1, width)
        scale = (s - centre).square().sum(dim=2).mean(dim=1)[:, None, None].sqrt()  # (T, 1, 1)
        return cls(centre, scale.clamp_min(torch.finfo(s.dtype).eps))  # supports may be all alike

    def __call__(self, features: Tensor) -> Tensor:
        return (F.normalize(features, dim=-1) - self.centre) / self.scale


@dataclass(frozen=True)
class LinearScores:
    """A fitted regression: ``bias`` (T, 1, N) and ``weights`` (T, width, N) on standard inputs."""

    inputs: _StandardInputs
    weights: Tensor
    bias: Tensor

    def __call__(self, query: Embeddings) -> Tensor:
        """Return the scores (T, Q, N) of queries (T, Q)."""
        return self.bias + self.inputs(query.features) @ self.weights


@dataclass(frozen=True)
class Ridge:
    """Least squares from features to one-hot labels, with a penalty on the squared weights.

    Parameters
    ----------
    strength
        Weight of the penalty, > 0; the squared errors of the supports are summed.
    """

    strength: float = 0.2
    transductive: ClassVar[bool] = False

    def __call__(
        self,
        support: Embeddings,
        labels: Tensor,
        query: Embeddings,
        ways: int,
        heads: Heads | None = None,  # noqa: ARG002
    ) -> Tensor:
        """Give the regression's values (T, Q, N)."""
        return self.fit(support, labels, ways)(query)

    def fit(self, support: Embeddings, labels: Tensor, ways: int) -> LinearScores:
        """Solve for the weights of each task."""
        _require_positive("strength", self.strength)
        inputs = _StandardInputs.of(support.features)
        x = inputs(support.features)  # (T, S, width)
        target = F.one_hot(labels, ways).to(x.dtype)  # (T, S, N)
        share = target.mean(dim=1, keepdim=True)  # (T, 1, N)
        ridge = self.strength * torch.eye(x.shape[1]).to(x)  # (S, S)
        coefficients: Tensor = torch.linalg.solve(x @ x.mT + ridge, target - share)  # (T, S, N)
        return LinearScores(inputs, x.mT @ coefficients, share)


@dataclass(frozen=True)
class Logistic:
    """Softmax regression with a penalty on the squared weights, solved to convergence.

    Parameters
    ----------
    C
        Weight of the supports' summed cross entropies against half the squared weights, > 0.
    """

    C: float = 10.0
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

    def fit(self, support: Embeddings, labels: Tensor, ways: int) -> LinearScores:
        """Solve for the weights of each task."""
        _require_positive("C", self.C)
        inputs = _StandardInputs.of(support.features)
        x = inputs(support.features)  # (T, S, width)
        target = F.one_hot(labels, ways).to(x.dtype)  # (T, S, N)
        coefficients, bias = _softmax_regression(x @ x.mT, target, self.C)
        return LinearScores(inputs, x.mT @ coefficients, bias)


@torch.no_grad()
def _softmax_regression(kernel: Tensor, target: Tensor, C: float) -> tuple[Tensor, Tensor]:
    """Minimise ‖w‖²/2 + C Σ cross entropy for w = Σ_s a_s x_s of centred points x_s.

    Every round minimises a quadratic bound of the objective, whose curvature (I + C/2 Σ x xᵀ for
    the weights, CS/2 for the bias) is never below the true one, from a point ahead of the last
    (Nesterov); tasks that come to move uphill start anew without that momentum.

    Parameters
    ----------
    kernel, target
        (T, S, S) inner products of the points, and (T, S, N) their one-hot labels.

    Returns
    -------
    tuple
        Coefficients a (T, S, N) and bias (T, 1, N).
    """
    identity = torch.eye(kernel.shape[1]).to(kernel)
    inverse = torch.linalg.inv(identity + C / 2 * kernel)  # (T, S, S)
    a = torch.zeros_like(target)  # (T, S, N)
    ka, bias = torch.zeros_like(a), torch.zeros_like(a[:, :1])  # kernel @ a (T, S, N), (T, 1, N)
    ahead = a, ka, bias
    age = torch.ones_like(kernel[:, :1, :1])  # (T, 1, 1) rounds since the last start, and a bit
    for _ in range(_ROUNDS):
        last = a, ka, bias
        a, ka, bias = ahead
        error = (ka + bias).softmax(dim=2) - target  # (T, S, N)
        slope = a + C * error  # (T, S, N), of the weights, in coefficients
        a = a - inverse @ slope
        ka = kernel @ a
        bias = bias - 2 * error.mean(dim=1, keepdim=True)

        ascent = slope * (ka - last[1]) + C * error * (bias - last[2])  # (T, S, N)
        onward = ascent.sum(dim=(1, 2), keepdim=True) <= 0  # (T, 1, 1)
        older = (1 + (1 + 4 * age**2).sqrt()) / 2
        lead = torch.where(onward, (age - 1) / older, 0)
        age = torch.where(onward, older, 1)
        ahead = tuple(
            now + lead * (now - old) for now, old in zip((a, ka, bias), last, strict=True)
        )
    return a, bias


def _require_positive(name: str, value: float) -> None:
    if not value > 0:
        raise InputError(f"{name} must be > 0, not {value}")
