"""ProtoNets: learn features whose class means classify (Snell, Swersky and Zemel, NeurIPS 2017)."""

from __future__ import annotations

from typing import ClassVar, Literal

import torch
import torch.nn.functional as F
from torch import Tensor

from psco.methods.base import (
    EPISODIC_SETTINGS,
    METHODS,
    Batch,
    Episode,
    Kind,
    Logs,
    Method,
    embedding_std,
)
from psco.networks.networks import Networks
from psco.ops.prototypes import squared_distances
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
    queries = query.flatten(-3, -2)  # (..., NQ, width)
    logits = -squared_distances(queries, means)  # (..., NQ, N)
    labels = torch.arange(N, device=logits.device).repeat_interleave(Q)  # (NQ,)
    return F.cross_entropy(logits.flatten(0, -2), labels.repeat(logits[..., 0, 0].numel()))


@METHODS.register("protonets")
class ProtoNets(Method):
    """Episodic training: every step is a task with more ways than the test has.

    Parameters
    ----------
    networks
        f; the heads are not used.
    ways
        N of a training task; None for as many as fit into the batch. Published: 60.
    shots, queries
        K and Q.
    """

    title = "ProtoNets"
    kind: ClassVar[Kind] = "supervised"
    views: ClassVar[Literal[1, 2]] = 1
    rule, transfer_rule = "euclidean", "euclidean"
    paper = "Snell, Swersky and Zemel, NeurIPS 2017"
    summary = "trains on labelled many-way tasks to classify by the nearest class mean"
    settings: ClassVar = {
        **EPISODIC_SETTINGS,
        "train": {**EPISODIC_SETTINGS["train"], "decay": "halving", "halving_steps": 2000},
    }
    episode: Episode

    def __init__(
        self, networks: Networks, ways: int | None = None, shots: int = 1, queries: int = 5
    ) -> None:
        super().__init__(networks.without_heads())
        self.episode = Episode(2 if ways is None else ways, shots, queries)
        self._fills_batch = ways is None

    def set_batch_size(self, batch_size: int) -> None:
        """Take as many ways as fit into the batch, unless their number was given."""
        shots, queries = self.episode.shots, self.episode.queries
        if self._fills_batch:
            self.episode = Episode(max(2, batch_size // (shots + queries)), shots, queries)

    def loss(self, batch: Batch) -> tuple[Tensor, Logs]:
        """Classify the queries of a task whose supports pass the network in the same batch."""
        features = self.backbone(batch.view_a)
        loss = protonet_loss(*self.episode.split(gather(features)))
        return loss, {"embedding_std": embedding_std(self.query_head(features))}
