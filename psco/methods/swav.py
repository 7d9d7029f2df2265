"""SwAV: predict the cluster of one view from the other (Caron et al., NeurIPS 2020)."""

from __future__ import annotations

from typing import ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from psco.methods.base import (
    METHODS,
    Batch,
    Logs,
    Method,
    embedding_std,
    query_both,
    require,
    require_positive,
)
from psco.methods.momentum import MomentumQueue
from psco.networks.networks import Networks
from psco.ops.ranks import gather, own_rows
from psco.ops.sinkhorn import sinkhorn


@torch.no_grad()
def codes(scores: Tensor, epsilon: float = 0.05, iterations: int = 3) -> Tensor:
    """Assign images to clusters, softly, so that all clusters get equally many.

    Parameters
    ----------
    scores
        (N, P) cosines of images and cluster centres.
    epsilon, iterations
        See `sinkhorn`.

    Returns
    -------
    Tensor
        (N, P) whose rows sum to 1, without gradient.
    """
    return len(scores) * sinkhorn(scores, epsilon, iterations)


def swapped_loss(
    scores_a: Tensor, scores_b: Tensor, codes_a: Tensor, codes_b: Tensor, temperature: float
) -> Tensor:
    """Predict the codes of each view from the scores of the other, all (N, P)."""

    def cross_entropy(code: Tensor, scores: Tensor) -> Tensor:
        return -(code * F.log_softmax(scores / temperature, dim=1)).sum(dim=1).mean()

    return cross_entropy(codes_a, scores_b) + cross_entropy(codes_b, scores_a)


@METHODS.register("swav")
class SwAV(Method):
    """Swapped prediction of online cluster assignments, with two views.

    Parameters
    ----------
    networks
        f and g; h is for variants only: SwAV has no predictor.
    clusters
        P, number of cluster centres. If there are more than images in the batch and its queue, they
        cannot get equally many. PsCo's code has 2,048 for batches of 256.
    temperature
        τ of the prediction.
    sinkhorn_epsilon, sinkhorn_iterations
        Of the codes, see `sinkhorn`.
    queue_size
        Representations of earlier batches that take part in the assignment; 0 for none.
    joint_batchnorm
        Whether both views pass the network as one batch; see `SimCLR`. SwAV's own code passes all
        views of one size together.
    """

    title = "SwAV"
    paper = "Caron et al., NeurIPS 2020"
    summary = "predicts a view's cluster from the other; clusters get equally many images"
    settings: ClassVar = {"heads": {"predictor": False}}
    training_only = ("queue", "centres")

    def __init__(
        self,
        networks: Networks,
        clusters: int = 512,
        temperature: float = 0.1,
        sinkhorn_epsilon: float = 0.05,
        sinkhorn_iterations: int = 3,
        queue_size: int = 0,
        joint_batchnorm: bool = True,
    ) -> None:
        super().__init__(networks)
        require(clusters >= 2, f"clusters must be at least 2, got {clusters}")
        require(queue_size >= 0, f"queue_size must be at least 0, got {queue_size}")
        require_positive(temperature=temperature)
        require_positive(sinkhorn_epsilon=sinkhorn_epsilon, sinkhorn_iterations=sinkhorn_iterations)
        self.centres = nn.Parameter(F.normalize(torch.randn(clusters, self.dim), dim=1))  # (P, d)
        if queue_size:
            self.queue_a = MomentumQueue(queue_size, self.dim)
            self.queue_b = MomentumQueue(queue_size, self.dim)
        self.queue_size = queue_size
        self.temperature = temperature
        self.sinkhorn_epsilon = sinkhorn_epsilon
        self.sinkhorn_iterations = sinkhorn_iterations
        self.joint_batchnorm = joint_batchnorm

    def loss(self, batch: Batch) -> tuple[Tensor, Logs]:
        """Swap the predictions of the two views."""
        with torch.no_grad():
            self.centres.copy_(F.normalize(self.centres, dim=1))
        centres = self.centres  # (P, d)
        z_a, z_b = query_both(self, batch, self.joint_batchnorm)  # (N, d)
        scores_a, scores_b = z_a @ centres.T, z_b @ centres.T  # (N, P)
        queues = (self.queue_a, self.queue_b) if self.queue_size else (None, None)
        with torch.no_grad():
            codes_a = self._codes(scores_a, queues[0])
            codes_b = self._codes(scores_b, queues[1])
        loss = swapped_loss(scores_a, scores_b, codes_a, codes_b, self.temperature)
        if self.training:
            for queue, z in zip(queues, (z_a, z_b), strict=True):
                if queue is not None:
                    queue.push(z.detach(), batch.labels)
        return loss, {"embedding_std": embedding_std(z_a)}

    def _codes(self, scores: Tensor, queue: MomentumQueue | None) -> Tensor:  # (N, P) -> (N, P)
        own = own_rows(len(scores))
        scores = gather(scores)  # (N, P), of the whole batch
        if queue is not None:
            scores = torch.cat([scores, queue.live(like=scores) @ self.centres.T])  # (N + M, P)
        return codes(scores, self.sinkhorn_epsilon, self.sinkhorn_iterations)[own]
