"""SimCLR: contrast the two views of a batch with each other (Chen et al., ICML 2020)."""

from __future__ import annotations

from typing import ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor

from psco.methods.base import (
    METHODS,
    Batch,
    Logs,
    Method,
    embedding_std,
    query_both,
    require_positive,
)
from psco.networks.networks import Networks
from psco.ops.ranks import gather


def nt_xent(z_a: Tensor, z_b: Tensor, temperature: float) -> Tensor:
    """Return the cross-entropy of finding the other view of an image in the batch.

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


@METHODS.register("simclr")
class SimCLR(Method):
    """Two views of an image attract, all others of the batch repel.

    Parameters
    ----------
    networks
        f and g; h is for variants only: SimCLR has no predictor.
    temperature
        τ.
    joint_batchnorm
        Whether both views pass the network as one batch of 2N, as in SimCLR's own code; otherwise
        one after the other, each normalised by the statistics of its view, as in PsCo's code.
    """

    title = "SimCLR"
    paper = "Chen, Kornblith, Norouzi and Hinton, ICML 2020"
    summary = "finds the other view among all images of the batch"
    settings: ClassVar = {"heads": {"predictor": False}}

    def __init__(
        self, networks: Networks, temperature: float = 0.5, joint_batchnorm: bool = True
    ) -> None:
        super().__init__(networks)
        require_positive(temperature=temperature)
        self.temperature = temperature
        self.joint_batchnorm = joint_batchnorm

    def loss(self, batch: Batch) -> tuple[Tensor, Logs]:
        """Contrast the views of a batch."""
        z_a, z_b = query_both(self, batch, self.joint_batchnorm)  # (N, d)
        loss = nt_xent(gather(z_a), gather(z_b), self.temperature)
        return loss, {"embedding_std": embedding_std(z_a)}
