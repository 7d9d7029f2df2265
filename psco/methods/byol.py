"""BYOL: predict the momentum network's view of an image, without negatives (Grill et al., 2020)."""

from __future__ import annotations

from typing import ClassVar

from torch import Tensor

from psco.methods.base import (
    METHODS,
    Batch,
    Logs,
    Method,
    embedding_std,
    require,
    require_momentum,
)
from psco.methods.momentum import EMA, momentum_at
from psco.networks.networks import Networks


def byol_loss(q: Tensor, z: Tensor) -> Tensor:
    """Return the squared distance of queries and keys (N, d), twice for the two directions."""
    return 4 - 4 * (q * z).sum(dim=1).mean()


@METHODS.register("byol")
class BYOL(Method):
    """An online network with a predictor follows its own moving average.

    Parameters
    ----------
    networks
        f, g and h; without h the network collapses to a constant.
    momentum
        m.
    symmetric
        Whether each view predicts the other; False for one direction only, as in the code that
        the PsCo paper's authors released.
    momentum_end
        m at the end of the run, see `momentum_at`: 1 in BYOL's paper; None keeps ``momentum``.
    """

    title = "BYOL"
    paper = "Grill et al., NeurIPS 2020"
    summary = "predicts a momentum network's embedding of the other view; no negatives"
    settings: ClassVar = {"heads": {"predictor": True}}

    def __init__(
        self,
        networks: Networks,
        momentum: float = 0.99,
        symmetric: bool = True,
        momentum_end: float | None = None,
    ) -> None:
        super().__init__(networks)
        require(self.has_predictor, "byol collapses without a predictor: heads.predictor=true")
        require_momentum(momentum, momentum_end)
        self.ema = EMA(self.without_predictor())
        self.momentum = momentum
        self.momentum_end = momentum_end
        self.symmetric = symmetric

    def loss(self, batch: Batch) -> tuple[Tensor, Logs]:
        """Pull the predictions from each view to the momentum network's embedding of the other."""
        if self.training and batch.starts_step:
            self.ema.update(self, momentum_at(batch.progress, self.momentum, self.momentum_end))
        x1, x2 = batch.view_a, batch.view_b
        q = self.query(x1)  # (N, d)
        loss = byol_loss(q, self.ema.key(x2))
        if self.symmetric:
            loss = (loss + byol_loss(self.query(x2), self.ema.key(x1))) / 2
        return loss, {"embedding_std": embedding_std(q)}
