"""The length of a run, its learning rate, and its optimiser."""

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
    """The learning rate of each step: an optional linear warm-up, then a decay.

    Parameters
    ----------
    peak
        Highest learning rate, scaled to the images of a step.
    warmup_steps, warmup
        Steps of linear increase, or the fraction of the run that it takes; the latter begins at a
        hundredth of the peak.
    steps
        Length of the run in steps; None if it is limited by time.
    seconds
        Length of the run in seconds; None if it is limited by steps. The number of steps in a given
        time varies, so two such runs are not bit-identical.
    decay, halving_steps
        Decay by a cosine to zero, by half every ``halving_steps`` steps, or not at all.
    """

    peak: float
    warmup_steps: int = 0
    steps: int | None = None
    seconds: float | None = None
    decay: Literal["cosine", "halving", "constant"] = "cosine"
    halving_steps: int = 2000
    warmup: float = 0.0

    def done(self, step: int, seconds: float) -> float:
        """Return the fraction of the run that is done before ``step``, in [0, 1]."""
        if self.steps is not None:
            return min(1.0, step / self.steps)
        return min(1.0, seconds / (self.seconds or 1.0))

    def learning_rate(self, step: int, done: float) -> float:
        """Return the learning rate of ``step`` (from 0), with the fraction ``done`` completed."""
        if step < self.warmup_steps:
            return self.peak * (step + 1) / self.warmup_steps
        if done < self.warmup:
            return self.peak * max(0.01, done / self.warmup)
        if self.decay == "cosine":
            return self.peak * 0.5 * (1 + math.cos(math.pi * done))
        if self.decay == "halving":
            return self.peak * 0.5 ** (step // self.halving_steps)
        return self.peak


def schedule_for(train: TrainSettings, batches_per_epoch: int) -> Schedule:
    """Return the schedule of a recipe for a data set with ``batches_per_epoch`` batches."""
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
        warmup=train.warmup,
    )


def build_optimizer(method: nn.Module, train: TrainSettings, rate: float) -> Optimizer:
    """Return the optimiser of a recipe for the trainable parameters of a method."""
    parameters = [p for p in method.parameters() if p.requires_grad]
    if train.optimizer == "adam":
        return torch.optim.Adam(parameters, lr=rate, weight_decay=train.weight_decay)
    if train.optimizer == "adamw":
        return torch.optim.AdamW(parameters, lr=rate, weight_decay=train.weight_decay, fused=True)
    return torch.optim.SGD(
        parameters,
        lr=rate,
        momentum=train.sgd_momentum,
        weight_decay=train.weight_decay,
        fused=True,  # one pass over each weight, its gradient and its momentum
    )
