"""SwAV: predict the cluster of one view from the other (Caron et al., NeurIPS 2020)."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from psco.methods.base import Method, output_dim, require, spread
from psco.methods.momentum import MomentumQueue
from psco.ops.ranks import gather, own_rows
from psco.ops.sinkhorn import rank_by_plan_


@torch.no_grad()
def codes(scores: Tensor, epsilon: float = 0.05, iterations: int = 3) -> Tensor:
    """Assign images to clusters so that every cluster gets an equal share, softly.

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
    plan = rank_by_plan_(scores / epsilon, 2 / epsilon, iterations)  # (N, P)
    return plan / plan.sum(dim=1, keepdim=True)


def swapped_loss(
    scores_a: Tensor, scores_b: Tensor, codes_a: Tensor, codes_b: Tensor, temperature: float
) -> Tensor:
    """Predict the codes of each view from the scores of the other, all (N, P)."""

    def cross_entropy(code: Tensor, scores: Tensor) -> Tensor:
        return -(code * F.log_softmax(scores / temperature, dim=1)).sum(dim=1).mean()

    return cross_entropy(codes_a, scores_b) + cross_entropy(codes_b, scores_a)


class SwAV(Method):
    """Swapped prediction of online cluster assignments, with two views.

    Parameters
    ----------
    backbone, projector, predictor
        f, g and, for variants only, h: SwAV has no predictor.
    clusters
        P, number of cluster centres. More than the images of a batch and its queue together
        cannot be filled equally.
    temperature
        τ of the prediction.
    sinkhorn_epsilon, sinkhorn_iterations
        Of the codes, see `sinkhorn`.
    queue_size
        Representations of earlier batches that take part in the assignment; 0 for none.
    """

    title = "SwAV"
    paper = "Caron et al., NeurIPS 2020"
    summary = "predicts a view's cluster from the other; clusters share the images equally"
    training_only = ("queue", "centres")

    def __init__(
        self,
        backbone: nn.Module,
        projector: nn.Module,
        predictor: nn.Module | None,
        clusters: int = 512,
        temperature: float = 0.1,
        sinkhorn_epsilon: float = 0.05,
        sinkhorn_iterations: int = 3,
        queue_size: int = 0,
    ) -> None:
        super().__init__(backbone, projector, predictor)
        require(clusters >= 2, f"clusters must be at least 2, not {clusters}")
        require(queue_size >= 0, f"queue_size must be at least 0, not {queue_size}")
        for name in ("temperature", "sinkhorn_epsilon", "sinkhorn_iterations"):
            require(locals()[name] > 0, f"{name} must be > 0, not {locals()[name]}")
        d = output_dim(projector)
        self.centres = nn.Parameter(F.normalize(torch.randn(clusters, d), dim=1))  # (P, d)
        if queue_size:
            self.queue_a = MomentumQueue(queue_size, d)
            self.queue_b = MomentumQueue(queue_size, d)
        self.queue_size, self.temperature = queue_size, temperature
        self.sinkhorn_epsilon, self.sinkhorn_iterations = sinkhorn_epsilon, sinkhorn_iterations

    def loss(
        self,
        view_a: Tensor,
        view_b: Tensor,
        labels: Tensor | None = None,
        update: bool = True,  # noqa: ARG002
    ) -> dict[str, Tensor]:
        """Swap the predictions of the two views; both pass the network as one batch of 2N."""
        with torch.no_grad():
            self.centres.copy_(F.normalize(self.centres, dim=1))
        centres = self.centres  # (P, d)
        features = self.backbone(torch.cat([view_a, view_b]))
        z_a, z_b = F.normalize(self.predictor(self.projector(features)), dim=1).chunk(2)  # (N, d)
        scores_a, scores_b = z_a @ centres.T, z_b @ centres.T  # (N, P)
        queues = (self.queue_a, self.queue_b) if self.queue_size else (None, None)
        with torch.no_grad():
            codes_a = self._codes(scores_a, queues[0], centres)
            codes_b = self._codes(scores_b, queues[1], centres)
        total = swapped_loss(scores_a, scores_b, codes_a, codes_b, self.temperature)
        if self.training:
            for queue, z in zip(queues, (z_a, z_b), strict=True):
                if queue is not None:
                    queue.push(gather(z.detach()), None if labels is None else gather(labels))
        return {"total": total, "spread": spread(z_a)}

    def _codes(self, scores: Tensor, queue: MomentumQueue | None, centres: Tensor) -> Tensor:
        own = own_rows(len(scores))
        scores = gather(scores)  # (N, P), of the whole batch
        if queue is not None:
            scores = torch.cat([scores, queue.keys.to(scores.dtype) @ centres.T])  # (N + M, P)
        return codes(scores, self.sinkhorn_epsilon, self.sinkhorn_iterations)[own]
