"""The SGD of the paper's adaptation schemes, for the parameters of many tasks at once.

SGD with momentum μ, weight decay λ and learning rate η, as in torch, is

    V ← μ V + G + λ W,    W ← W − η V

for a gradient G. Let c be the smaller root of μη c² − (1 − μ − ηλ) c + λ = 0. Then the weights
follow a target U = W − V/c, which only the gradients move:

    U ← ρ U − γ G,        W ← W + w (U − W)

with ρ = μ (1 + ηc), γ = (1 + ηc) / c and w = ηc / (1 + ηc). These are the same steps with one pass
less over the memory. They are also linear: weights that start as W₀ plus a combination of given
vectors stay so, and only the coefficients need training.

`step` and `step_product` are also compiled, see ``adapt_together.py``. Their constants are default
arguments because a compiled function cannot read those of its module.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor

LEARNING_RATE = 0.01
MOMENTUM = 0.9
WEIGHT_DECAY = 0.001

_b = 1 - MOMENTUM - LEARNING_RATE * WEIGHT_DECAY
_c = (_b - math.sqrt(_b**2 - 4 * MOMENTUM * LEARNING_RATE * WEIGHT_DECAY)) / (
    2 * MOMENTUM * LEARNING_RATE
)
_RHO = MOMENTUM * (1 + LEARNING_RATE * _c)
_GAMMA = (1 + LEARNING_RATE * _c) / _c
_PACE = LEARNING_RATE * _c / (1 + LEARNING_RATE * _c)


class Trained(NamedTuple):
    """A parameter (T, ...) of T tasks under SGD: its value W and its target U."""

    value: Tensor
    target: Tensor


def start_sgd(start: Tensor) -> Trained:
    """Return a parameter with a copy of the initial values (T, ...); steps change it in place."""
    value = start.clone(memory_format=torch.contiguous_format)
    return Trained(value, value.clone())


def step(
    weights: Trained,
    gradient: Tensor,
    rho: float = _RHO,
    gamma: float = _GAMMA,
    pace: float = _PACE,
) -> None:
    """Take a step along a gradient (T, ...)."""
    weights.target.mul_(rho).add_(gradient, alpha=-gamma)
    weights.value.lerp_(weights.target, pace)


def step_rows(weights: Trained, gradient: Tensor, rows: Tensor) -> None:
    """Take a step of (T, S, n) along a gradient (T, r, n) of the rows (T, r); others have none."""
    index = rows[..., None].expand_as(gradient)
    weights.target.mul_(_RHO).scatter_add_(1, index, -_GAMMA * gradient)
    weights.value.lerp_(weights.target, _PACE)


def step_product(
    weights: Trained,
    left: Tensor,
    right: Tensor,
    rho: float = _RHO,
    gamma: float = _GAMMA,
    pace: float = _PACE,
) -> None:
    """Take a step of a matrix (T, a, b) along leftᵀ right of (T, S, a) and (T, S, b)."""
    weights.target.baddbmm_(left.mT, right, beta=rho, alpha=-gamma)
    weights.value.lerp_(weights.target, pace)


def decay_factors(steps: int) -> list[float]:
    """Return the factor of W₀ in W, due to weight decay: before each step and after the last."""
    value = target = 1.0
    factors = [value]
    for _ in range(steps):
        target *= _RHO
        value += _PACE * (target - value)
        factors.append(value)
    return factors
