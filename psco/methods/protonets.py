"""ProtoNets: learn features whose class means classify (Snell, Swersky and Zemel, NeurIPS 2017)."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from psco.methods.base import Episode, Method, spread
from psco.ops.ranks import gather


def protonet_loss(support: Tensor, query: Tensor) -> Tensor:
    """Classify queries by their squared Euclidean distance to the class means.

    Parameters
    ----------
    support
        (..., N, K, width) features; any number of tasks in front.
    query
        (..., N, Q, width) features; those of row n belong to class n.

    Returns
    -------
    Tensor
        The mean cross-entropy over all queries, a scalar.
    """
    N, Q = query.shape[-3:-1]
    means = support.mean(dim=-2)  # (..., N, width)
    points = query.flatten(-3, -2)  # (..., NQ, width)
    logits = -squared_distances(points, means)  # (..., NQ, N)
    labels = torch.arange(N, device=logits.device).repeat_interleave(Q)  # (NQ,)
    return F.cross_entropy(logits.flatten(0, -2), labels.repeat(logits[..., 0, 0].numel()))


def squared_distances(a: Tensor, b: Tensor) -> Tensor:
    """Give ‖a − b‖² between the rows of (..., n, d) and (..., m, d): (..., n, m)."""
    products = a @ b.mT
    return a.square().sum(-1)[..., :, None] + b.square().sum(-1)[..., None, :] - 2 * products


class ProtoNets(Method):
    """Episodic training: every step is a task with more ways than the test has.

    Parameters
    ----------
    backbone, projector, predictor
        f; the heads are not used.
    ways
        N of a training task; None for as many as the batch has room for. Published: 60.
    shots, queries
        K and Q.
    """

    title, kind, views = "ProtoNets", "supervised", 1
    rule, transfer_rule = "euclidean", "euclidean"
    paper = "Snell, Swersky and Zemel, NeurIPS 2017"
    summary = "trains on labelled many-way tasks to classify by the nearest class mean"
    episode: Episode

    def __init__(
        self,
        backbone: nn.Module,
        projector: nn.Module,  # noqa: ARG002
        predictor: nn.Module | None,  # noqa: ARG002
        ways: int | None = None,
        shots: int = 1,
        queries: int = 5,
    ) -> None:
        super().__init__(backbone)
        self.episode = Episode(2 if ways is None else ways, shots, queries)
        self._fills = ways is None

    def fill(self, batch_size: int) -> None:
        """Take as many ways as the batch has room for, unless their number was given."""
        shots, queries = self.episode.shots, self.episode.queries
        if self._fills:
            self.episode = Episode(max(2, batch_size // (shots + queries)), shots, queries)

    def loss(
        self,
        view_a: Tensor,
        view_b: Tensor,  # noqa: ARG002
        labels: Tensor | None = None,  # noqa: ARG002
        update: bool = True,  # noqa: ARG002
    ) -> dict[str, Tensor]:
        """Classify the queries of a task whose supports pass the network in the same batch."""
        features = self.backbone(view_a)
        total = protonet_loss(*self.episode.split(gather(features)))
        return {"total": total, "spread": spread(self.query_head(features))}
