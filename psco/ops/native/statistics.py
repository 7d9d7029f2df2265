"""Running statistics in one call: see ``statistics.c``."""

from __future__ import annotations

import torch
from torch import Tensor

from psco.ops.native.build import call, library


def suits_statistics(running: Tensor, *others: Tensor) -> bool:
    """Say whether `remember_statistics` takes vectors (C,) like these."""
    single = running.dtype == torch.float32 and running.device.type == "cpu"
    if not single or library() is None:
        return False
    return all(other.dtype == running.dtype and other.is_contiguous() for other in others)


def remember_statistics(
    mean: Tensor,
    variance: Tensor,
    running_mean: Tensor,
    running_variance: Tensor,
    batches: Tensor,
    momentum: float,
    count: int,
) -> None:
    """Move running statistics in place, as BatchNorm does in training.

    Parameters
    ----------
    mean, variance
        (C,) of the batch, the variance biased.
    running_mean, running_variance, batches
        (C,), (C,) and () int64, what is moved.
    momentum
        The weight of the batch.
    count
        At least 2: numbers that a mean is taken of.
    """
    moved = (running_mean, running_variance, batches)
    call("remember_statistics", mean, variance, *moved, momentum, count, len(mean))
