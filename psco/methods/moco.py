"""MoCo v2: contrast with a queue of keys from a momentum network (Chen et al., 2020)."""

from __future__ import annotations

from typing import ClassVar

import torch
from torch import Tensor

from psco.methods.base import (
    METHODS,
    Batch,
    Logs,
    Method,
    embedding_std,
    require_momentum,
    require_positive,
)
from psco.methods.momentum import EMA, FillingQueue, MomentumQueue, momentum_at
from psco.networks.networks import Networks
from psco.ops.contrast import contrast_with_queue
from psco.ops.ranks import rows_of_others


def moco_loss(
    q: Tensor,
    z: Tensor,
    queue: Tensor,
    temperature: float,
    batch_negatives: bool = False,
    spared: Tensor | None = None,
) -> Tensor:
    """Contrast every query (N, d) with its own key in z (N, d) among negatives, Eq. (6) of PsCo.

    The negatives are the queue (M, d); with ``batch_negatives`` also the keys of the other images
    of the batch, as the text of PsCo's paper has it. Its authors' code, and MoCo, use the queue
    only. ``spared`` (N, K) are rows of the queue that are not negatives of the query.
    """
    if batch_negatives:
        queue = torch.cat([queue, rows_of_others(z)])
    return contrast_with_queue(q, z, queue, temperature, batch_negatives, spared)


@METHODS.register("moco")
class MoCo(Method):
    """Find the key of the other view among those of earlier batches.

    Parameters
    ----------
    networks
        f and g; h is for variants only: MoCo v2 has no predictor.
    queue_size, momentum, temperature
        M, m and τ.
    momentum_end
        m at the end of the run, see `momentum_at`; None (as published) keeps ``momentum``.
    filled_queue
        True: while the queue is not full, only keys of earlier batches take part, and not the
        random ones it starts with.
    """

    title = "MoCo v2"
    paper = "Chen, Fan, Girshick and He, 2020"
    summary = "finds the other view's key in a queue of keys of a momentum network"
    settings: ClassVar = {"heads": {"predictor": False}}

    def __init__(
        self,
        networks: Networks,
        queue_size: int = 16384,
        momentum: float = 0.99,
        temperature: float = 0.2,
        momentum_end: float | None = None,
        filled_queue: bool = False,
    ) -> None:
        super().__init__(networks)
        require_momentum(momentum, momentum_end)
        require_positive(temperature=temperature)
        self.ema = EMA(self.without_predictor())
        self.queue = MomentumQueue(queue_size, self.dim)
        if filled_queue:
            self.queue = FillingQueue(self.queue)
        self.momentum = momentum
        self.momentum_end = momentum_end
        self.temperature = temperature

    def loss(self, batch: Batch) -> tuple[Tensor, Logs]:
        """Contrast queries from view_a with keys from view_b, then remember the keys."""
        if self.training and batch.starts_step:
            self.ema.update(self, momentum_at(batch.progress, self.momentum, self.momentum_end))
        q = self.query(batch.view_a)  # (N, d)
        k = self.ema.key(batch.view_b)  # (N, d)
        loss = moco_loss(q, k, self.queue.live(like=k), self.temperature)
        if self.training:
            self.queue.push(k, batch.labels)
        return loss, {"embedding_std": embedding_std(q)}
