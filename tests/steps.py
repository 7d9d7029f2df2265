"""Calls of a method's loss, for tests."""

from __future__ import annotations

from torch import Tensor

from psco.methods import Batch, Method


def run_loss(
    method: Method,
    view_a: Tensor,
    view_b: Tensor,
    labels: Tensor | None = None,
    progress: float = 0.0,
    starts_step: bool = True,
) -> dict[str, Tensor]:
    """Return the loss of a batch as ``total``, and what is logged beside it."""
    total, logs = method.loss(Batch(view_a, view_b, labels, progress, starts_step))
    return {"total": total, **logs}
