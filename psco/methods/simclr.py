"""SimCLR: contrast the two views of a batch with each other (Chen et al., ICML 2020)."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from psco.methods.base import Method, require, spread
from psco.ops.ranks import gather


def nt_xent(z_a: Tensor, z_b: Tensor, temperature: float) -> Tensor:
    """Pick the other view of an image among all other images of the batch.

    Parameters
    ----------
    z_a, z_b
        (N, d) representations of unit length; row n of both shows image n.
    temperature
        τ > 0.

    Returns
    -------
    Tensor
        The mean cross-entropy over the 2N representations, a scalar.
    """
    N = len(z_a)
    z = torch.cat([z_a, z_b])  # (2N, d)
    itself = torch.eye(2 * N, dtype=torch.bool, device=z.device)
    logits = (z @ z.T / temperature).masked_fill(itself, -torch.inf)  # (2N, 2N)
    other = torch.arange(2 * N, device=z.device).roll(N)  # (2N,)
    return F.cross_entropy(logits, other)


class SimCLR(Method):
    """Two views of an image attract, all others of the batch repel.

    Parameters
    ----------
    backbone, projector, predictor
        f, g and, for variants only, h: SimCLR has no predictor.
    temperature
        τ.
    """

    title = "SimCLR"
    paper = "Chen, Kornblith, Norouzi and Hinton, ICML 2020"
    summary = "picks the other view among all images of the batch"

    def __init__(
        self,
        backbone: nn.Module,
        projector: nn.Module,
        predictor: nn.Module | None,
        temperature: float = 0.5,
    ) -> None:
        super().__init__(backbone, projector, predictor)
        require(temperature > 0, f"temperature must be > 0, not {temperature}")
        self.temperature = temperature

    def loss(
        self,
        view_a: Tensor,
        view_b: Tensor,
        labels: Tensor | None = None,  # noqa: ARG002
        update: bool = True,  # noqa: ARG002
    ) -> dict[str, Tensor]:
        """Contrast the views of a batch; both pass the network as one batch of 2N."""
        features = self.backbone(torch.cat([view_a, view_b]))
        z = F.normalize(self.predictor(self.projector(features)), dim=1)  # (2N, d)
        z_a, z_b = z.chunk(2)  # (N, d)
        total = nt_xent(gather(z_a), gather(z_b), self.temperature)
        return {"total": total, "spread": spread(z_a)}
