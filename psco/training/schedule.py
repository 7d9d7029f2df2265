"""How long a run is, its learning rate on the way, and the optimiser that follows it."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

import torch
from torch import nn
from torch.optim import Optimizer

from psco.recipes.recipe import TrainSettings


@dataclass(frozen=True)
class Schedule:
    """Decay per step with an optional linear warm-up.

    Parameters
    ----------
    peak
        Learning rate at the top, scaled to the images of a step.
    warmup_steps
        Steps of linear rise.
    steps
        Length of the run in steps, or None when it is limited by time.
    seconds
        Length of the run in seconds, or None when it is limited by steps. Such a run ends in time
        whatever the speed of the machine, so two of them are not the same to the bit.
    decay, halving_steps
        How the rate falls: by a cosine to zero, by half every so many steps, or not at all.
    """

    peak: float
    warmup_steps: int = 0
    steps: int | None = None
    seconds: float | None = None
    decay: Literal["cosine", "halving", "constant"] = "cosine"
    halving_steps: int = 2000

    def done(self, step: int, seconds: float) -> float:
        """Give the share of the run that is over before ``step``, in [0, 1]."""
        if self.steps is not None:
            return min(1.0, step / self.steps)
        return min(1.0, seconds / (self.seconds or 1.0))

    def learning_rate(self, step: int, done: float) -> float:
        """Give the learning rate of ``step`` (from 0), at the share ``done`` of the run."""
        if step < self.warmup_steps:
            return self.peak * (step + 1) / self.warmup_steps
        if self.decay == "cosine":
            return self.peak * 0.5 * (1 + math.cos(math.pi * done))
        if self.decay == "halving":
            return self.peak * 0.5 ** (step // self.halving_steps)
        return self.peak


def schedule_for(train: TrainSettings, batches_per_epoch: int) -> Schedule:
    """Make the schedule of a recipe for a data set of so many batches."""
    scale = train.batch_size * train.accumulate / 256 if train.optimizer == "sgd" else 1.0
    steps = train.steps
    if train.epochs is not None:
        steps = max(1, round(train.epochs * batches_per_epoch / train.accumulate))
    return Schedule(
        peak=train.learning_rate * scale,
        warmup_steps=train.warmup_steps,
        steps=steps,
        seconds=None if train.minutes is None else 60 * train.minutes,
        decay=train.decay,
        halving_steps=train.halving_steps,
    )


def build_optimizer(method: nn.Module, train: TrainSettings, rate: float) -> Optimizer:
    """Make the optimiser of a recipe for what is to be trained in a method."""
    parameters = [p for p in method.parameters() if p.requires_grad]
    if train.optimizer == "adam":
        return torch.optim.Adam(parameters, lr=rate, weight_decay=train.weight_decay)
    return torch.optim.SGD(
        parameters,
        lr=rate,
        momentum=train.sgd_momentum,
        weight_decay=train.weight_decay,
        fused=True,  # one pass over each weight, its gradient and its momentum
    )
