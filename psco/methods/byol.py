"""BYOL: predict the momentum network's view of an image, without negatives (Grill et al., 2020)."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from psco.methods.base import Method, require, require_momentum, spread
from psco.methods.momentum import MomentumTwin, momentum_at
from psco.methods.psco import byol_loss


class BYOL(Method):
    """An online network with a predictor follows its own moving average.

    Parameters
    ----------
    backbone, projector, predictor
        f, g and h; without h the network collapses to a constant.
    momentum
        m.
    momentum_end
        m at the end of the run, see `momentum_at`: 1 in BYOL's paper; None keeps ``momentum``.
    symmetric
        Whether each view predicts the other; False for one direction only, as in the code that
        the PsCo paper's authors released.
    """

    title = "BYOL"
    paper = "Grill et al., NeurIPS 2020"
    summary = "predicts a momentum network's embedding of the other view; no negatives"

    def __init__(
        self,
        backbone: nn.Module,
        projector: nn.Module,
        predictor: nn.Module | None,
        momentum: float = 0.99,
        symmetric: bool = True,
        momentum_end: float | None = None,
    ) -> None:
        super().__init__(backbone, projector, predictor)
        require(predictor is not None, "byol collapses without a predictor: heads.predictor=true")
        require_momentum(momentum, momentum_end)
        self.momentum_backbone = MomentumTwin(backbone)
        self.momentum_projector = MomentumTwin(projector)
        self.momentum, self.momentum_end = momentum, momentum_end
        self.symmetric = symmetric

    def loss(
        self,
        view_a: Tensor,
        view_b: Tensor,
        labels: Tensor | None = None,  # noqa: ARG002
        update: bool = True,
    ) -> dict[str, Tensor]:
        """Pull the predictions from each view to the momentum network's embedding of the other."""
        if update and self.training:
            m = momentum_at(self.done, self.momentum, self.momentum_end)
            self.momentum_backbone.update(self.backbone, m)
            self.momentum_projector.update(self.projector, m)
        q = self._predict(view_a)
        total = byol_loss(q, self._target(view_b))
        if self.symmetric:
            total = (total + byol_loss(self._predict(view_b), self._target(view_a))) / 2
        return {"total": total, "spread": spread(q)}

    def _predict(self, x: Tensor) -> Tensor:  # (N, C, H, W) -> (N, d)
        return F.normalize(self.predictor(self.projector(self.backbone(x))), dim=1)

    @torch.no_grad()
    def _target(self, x: Tensor) -> Tensor:  # (N, C, H, W) -> (N, d)
        return F.normalize(self.momentum_projector(self.momentum_backbone(x)), dim=1)
