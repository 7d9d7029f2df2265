"""Regularised regression on the backbone's features, for tasks with many shots.

Both rules standardise the features: to unit length, centred on the mean of the task's supports,
and divided by the root mean square distance of the supports from it. A given regularisation then
means the same for every network; with a network trained on characters, the defaults work well on
characters, satellite images and plant leaves. The weights are combinations of the S supports, so
only S coefficients per class are solved for.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor

from psco.errors import InputError
from psco.evaluation.rules.rule import Embeddings, SupportSet

_ITERATIONS = 200  # of logistic regression


@dataclass(frozen=True)
class _Standardise:
    """Scale features to unit length, subtract ``centre`` (T, 1, width), divide by ``scale``."""

    centre: Tensor
    scale: Tensor  # (T, 1, 1)

    @classmethod
    def of(cls, support: Tensor) -> _Standardise:
        """Take centre and scale from the supports (T, S, width)."""
        s = F.normalize(support, dim=-1)
        centre = s.mean(dim=1, keepdim=True)  # (T, 1, width)
        scale = (s - centre).square().sum(dim=2).mean(dim=1)[:, None, None].sqrt()  # (T, 1, 1)
        return cls(centre, scale.clamp_min(torch.finfo(s.dtype).eps))  # supports may be equal

    def __call__(self, features: Tensor) -> Tensor:
        return (F.normalize(features, dim=-1) - self.centre) / self.scale


@dataclass(frozen=True)
class LinearScores:
    """A fitted regression: ``bias`` (T, 1, N) and ``weights`` (T, width, N) on standard inputs."""

    standardise: _Standardise
    weights: Tensor
    bias: Tensor

    def __call__(self, query: Embeddings) -> Tensor:
        """Return the scores (T, Q, N) of queries (T, Q)."""
        return self.bias + self.standardise(query.features) @ self.weights


@dataclass(frozen=True)
class Ridge:
    """Least squares from features to one-hot labels, with a penalty on the squared weights.

    Parameters
    ----------
    strength
        Weight of the penalty, > 0, against the summed squared errors of the supports.
    """

    strength: float = 0.2
    transductive: ClassVar[bool] = False

    def __call__(self, support: SupportSet, query: Embeddings) -> Tensor:
        """Return the predicted one-hot values (T, Q, N)."""
        return self.fit(support)(query)

    def fit(self, support: SupportSet) -> LinearScores:
        """Solve for the weights of each task."""
        _require_positive("strength", self.strength)
        standardise = _Standardise.of(support.embeddings.features)
        x = standardise(support.embeddings.features)  # (T, S, width)
        target = F.one_hot(support.labels, support.ways).to(x.dtype)  # (T, S, N)
        mean = target.mean(dim=1, keepdim=True)  # (T, 1, N)
        ridge = self.strength * torch.eye(x.shape[1]).to(x)  # (S, S)
        coefficients: Tensor = torch.linalg.solve(x @ x.mT + ridge, target - mean)  # (T, S, N)
        return LinearScores(standardise, x.mT @ coefficients, mean)


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

    def __call__(self, support: SupportSet, query: Embeddings) -> Tensor:
        """Return logits (T, Q, N)."""
        return self.fit(support)(query)

    def fit(self, support: SupportSet) -> LinearScores:
        """Solve for the weights of each task."""
        _require_positive("C", self.C)
        standardise = _Standardise.of(support.embeddings.features)
        x = standardise(support.embeddings.features)  # (T, S, width)
        target = F.one_hot(support.labels, support.ways).to(x.dtype)  # (T, S, N)
        coefficients, bias = _softmax_regression(x @ x.mT, target, self.C)
        return LinearScores(standardise, x.mT @ coefficients, bias)


@torch.no_grad()
def _softmax_regression(kernel: Tensor, target: Tensor, C: float) -> tuple[Tensor, Tensor]:
    """Minimise ‖w‖²/2 + C Σ cross entropy for w = Σ_s a_s x_s with centred supports x_s.

    Each iteration minimises a quadratic upper bound of the objective (curvature I + C/2 Σ x xᵀ for
    the weights, CS/2 for the bias), starting ahead of the last iterate (Nesterov). Tasks that move
    uphill drop their momentum and restart.

    Parameters
    ----------
    kernel, target
        (T, S, S) inner products of the supports, and (T, S, N) their one-hot labels.

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
    age = torch.ones_like(kernel[:, :1, :1])  # (T, 1, 1) Nesterov's t since the last restart
    for _ in range(_ITERATIONS):
        last = a, ka, bias
        a, ka, bias = ahead
        error = (ka + bias).softmax(dim=2) - target  # (T, S, N)
        slope = a + C * error  # (T, S, N), of the weights, in coefficients
        a = a - inverse @ slope
        ka = kernel @ a
        bias = bias - 2 * error.mean(dim=1, keepdim=True)

        ascent = slope * (ka - last[1]) + C * error * (bias - last[2])  # (T, S, N)
        downhill = ascent.sum(dim=(1, 2), keepdim=True) <= 0  # (T, 1, 1)
        older = (1 + (1 + 4 * age**2).sqrt()) / 2
        lead = torch.where(downhill, (age - 1) / older, 0)
        age = torch.where(downhill, older, 1)
        ahead = tuple(
            now + lead * (now - old) for now, old in zip((a, ka, bias), last, strict=True)
        )
    return a, bias


def _require_positive(name: str, value: float) -> None:
    if not value > 0:
        raise InputError(f"{name} must be > 0, got {value}")
