"""MoCo v2: contrast with a queue of keys from a momentum network (Chen et al., 2020)."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from psco.methods.base import Method, output_dim, require, require_momentum, spread
from psco.methods.momentum import FillingQueue, MomentumQueue, MomentumTwin, momentum_at
from psco.methods.psco import moco_loss
from psco.ops.ranks import gather


class MoCo(Method):
    """Pick the key of the other view among those of earlier batches.

    Parameters
    ----------
    backbone, projector, predictor
        f, g and, for variants only, h: MoCo v2 has no predictor.
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
    summary = "picks the other view's key among a queue of keys of a momentum network"

    def __init__(
        self,
        backbone: nn.Module,
        projector: nn.Module,
        predictor: nn.Module | None,
        queue_size: int = 16384,
        momentum: float = 0.99,
        temperature: float = 0.2,
        momentum_end: float | None = None,
        filled_queue: bool = False,
    ) -> None:
        super().__init__(backbone, projector, predictor)
        require_momentum(momentum, momentum_end)
        require(temperature > 0, f"temperature must be > 0, not {temperature}")
        self.momentum_backbone = MomentumTwin(backbone)
        self.momentum_projector = MomentumTwin(projector)
        kind = FillingQueue if filled_queue else MomentumQueue
        self.queue = kind(queue_size, output_dim(projector))
        self.momentum, self.momentum_end = momentum, momentum_end
        self.temperature = temperature

    def loss(
        self, view_a: Tensor, view_b: Tensor, labels: Tensor | None = None, update: bool = True
    ) -> dict[str, Tensor]:
        """Contrast queries from view_a with keys from view_b, then remember the keys."""
        if update and self.training:
            m = momentum_at(self.done, self.momentum, self.momentum_end)
            self.momentum_backbone.update(self.backbone, m)
            self.momentum_projector.update(self.projector, m)
        q = F.normalize(self.predictor(self.projector(self.backbone(view_a))), dim=1)  # (N, d)
        with torch.no_grad():
            k = F.normalize(self.momentum_projector(self.momentum_backbone(view_b)), dim=1)
        total = moco_loss(q, k, self.queue.live().to(k.dtype), self.temperature)
        if self.training:
            self.queue.push(gather(k), None if labels is None else gather(labels))
        return {"total": total, "spread": spread(q)}
