"""The SGD of the paper's adaptation schemes, for the parameters of many tasks at once.

SGD with momentum μ, weight decay λ and learning rate η, as torch has it, is

    V ← μ V + G + λ W,    W ← W − η V

for a gradient G. Let c be the smaller root of μη c² − (1 − μ − ηλ) c + λ = 0. Then the weights
follow the goal U = W − V/c, and the goal moves by gradients only:

    U ← ρ U − γ G,        W ← W + w (U − W)

with ρ = μ (1 + ηc), γ = (1 + ηc) / c and w = ηc / (1 + ηc). These are the same steps with a pass
over the memory less, and they are linear: weights that are W₀ plus a combination of given vectors
remain so, and only the coefficients need training.

`step` and `step_product` are also compiled, see ``psco.evaluation.rules.parallel``. Their constants
are default arguments because a compiled function cannot see those of its module.
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
    """A parameter of T tasks under SGD: see `trained`."""

    value: Tensor
    goal: Tensor


def trained(start: Tensor) -> Trained:
    """Begin with values (T, ...), which are copied; the functions below change the copies."""
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
    weights.goal.mul_(rho).add_(gradient, alpha=-gamma)
    weights.value.lerp_(weights.goal, pace)


def step_rows(weights: Trained, gradient: Tensor, rows: Tensor) -> None:
    """Take a step along a gradient that is zero but for r rows: (T, r, ...)."""
    weights.goal.mul_(_RHO).index_add_(1, rows, gradient, alpha=-_GAMMA)
    weights.value.lerp_(weights.goal, _PACE)


def step_product(
    weights: Trained,
    left: Tensor,
    right: Tensor,
    rho: float = _RHO,
    gamma: float = _GAMMA,
    pace: float = _PACE,
) -> None:
    """Take a step of a matrix (T, a, b) along leftᵀ right of (T, S, a) and (T, S, b)."""
    weights.goal.baddbmm_(left.mT, right, beta=rho, alpha=-gamma)
    weights.value.lerp_(weights.goal, pace)


def remains(steps: int) -> list[float]:
    """Say what weight decay leaves of W₀: its factor in W before each step and after the last."""
    value = goal = 1.0
    factors = [value]
    for _ in range(steps):
        goal *= _RHO
        value += _PACE * (goal - value)
        factors.append(value)
    return factors
