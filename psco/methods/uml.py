"""UML: episodes of views, drawn many times from one batch (Ye, Han and Zhan, TPAMI 2022).

Revisiting Unsupervised Meta-Learning via the Characteristics of Few-Shot Tasks. Every image is a
class: one view is its shot, the others are queries. Its three parts, by the paper's names:

- SES, sufficient episodic sampling: T tasks of N random images from the same embeddings;
- SNS, semi-normalised similarity: q·c / ‖c‖, in training and at test;
- HMS or TSP-Head, on top: negatives mixed with the query, or attention over the task in training.

There is neither a projector nor a predictor.
"""

from __future__ import annotations

import math
from typing import Any, ClassVar, Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from psco.methods.base import METHODS, Batch, Logs, Method, embedding_std, require
from psco.networks.networks import Networks
from psco.ops.mixing import MOST, mix


@METHODS.register("uml")
class UML(Method):
    """Classify views of images by the one view of each that is its shot.

    Parameters
    ----------
    networks
        f; the heads are not used.
    ways, tasks
        N images of a task, and T tasks drawn from a batch.
    mixing
        ``hms``: every query has further negatives, its nearest embeddings of other images, each
        mixed with it.
    mixed_negatives
        Their number.
    head
        ``tsp``: in training, the embeddings of a task first attend to each other.
    """

    title = "UML"
    kind = "unsupervised"
    paper = "Ye, Han and Zhan, TPAMI 2022"
    summary = "classifies views by one shot of each image, in many tasks drawn from a batch"
    rule, transfer_rule = "class-mean", "class-mean"
    settings: ClassVar = {
        "views": {"count": 6},
        "heads": {"predictor": False},
        "train": {
            "batch_size": 64,
            "optimizer": "adam",
            "learning_rate": 0.002,
            "weight_decay": 0.0,
            "warmup_steps": 0,
            "freeze": None,
        },
    }
    takes_more_views = True
    training_only: ClassVar[tuple[str, ...]] = ("head.",)
    distributes: ClassVar[bool] = False

    def __init__(
        self,
        networks: Networks,
        ways: int = 5,
        tasks: int = 256,
        mixing: Literal["none", "hms"] | None = "none",
        mixed_negatives: int = 10,
        head: Literal["none", "tsp"] | None = "none",
    ) -> None:
        super().__init__(networks.without_heads())
        require(ways >= 2, f"ways must be at least 2, got {ways}")
        require(tasks >= 1, f"tasks must be at least 1, got {tasks}")
        valid = mixing in ("none", "hms", None)
        require(valid, f"mixing must be 'none' or 'hms', got {mixing!r}")
        require(mixed_negatives >= 1, f"mixed_negatives must be at least 1, got {mixed_negatives}")
        valid = head in ("none", "tsp", None)
        require(valid, f"head must be 'none' or 'tsp', got {head!r}")
        self.head = TaskHead(self.width) if head == "tsp" else None
        self.ways = ways
        self.tasks = tasks
        self.mixed_negatives = mixed_negatives if mixing == "hms" else 0

    def set_batch_size(self, batch_size: int) -> None:
        """Check that a batch has enough images for a task and for the negatives."""
        fits = batch_size >= self.ways
        require(fits, f"train.batch_size must be at least method.ways, {self.ways}")
        fits = 2 * (batch_size - 1) >= self.mixed_negatives
        wanted = f"mixed_negatives must be at most {2 * (batch_size - 1)} with this batch"
        require(fits, f"{wanted}, got {self.mixed_negatives}")

    def rule_options(self) -> dict[str, Any]:
        """Return the options of SNS at test: the mean of features that are not normalised."""
        return {"normalise": False}

    def loss(self, batch: Batch) -> tuple[Tensor, Logs]:
        """Return the mean cross-entropy of the queries of T random tasks."""
        N, V = len(batch.view_b), len(batch.view_a) // len(batch.view_b) + 1
        z = self.backbone(torch.cat([batch.view_b, batch.view_a]))  # (VN, d), view by view
        images = torch.rand(self.tasks, N, device=z.device).argsort(dim=1)[:, : self.ways]  # (T, n)
        rows = images[:, None] + N * torch.arange(V, device=z.device)[:, None]  # (T, V, n)
        logits = episode_logits(z, rows) if self.head is None else self.head.logits(z, rows)
        if self.mixed_negatives:
            hard = mixed_logits(z, N, self.mixed_negatives)  # (VN, H)
            logits = torch.cat([logits, hard[rows[:, 1:]]], dim=3)  # (T, V - 1, n, n + H)
        truth = torch.arange(self.ways, device=z.device).expand(rows[:, 1:].shape)  # (T, V - 1, n)
        loss = F.cross_entropy(logits.flatten(0, 2), truth.flatten())
        found = logits.argmax(dim=3) == truth
        logs = {"accuracy": found.float().mean().detach()}
        return loss, {**logs, "embedding_std": embedding_std(F.normalize(z.detach(), dim=1))}


def episode_logits(z: Tensor, rows: Tensor) -> Tensor:
    """Return the similarities q·c / ‖c‖ of the queries of tasks to their shots.

    Parameters
    ----------
    z
        (VN, d) embeddings.
    rows
        (T, V, n) int64 rows of z: of the shots of n classes, then of V − 1 queries of each.

    Returns
    -------
    Tensor
        (T, V − 1, n, n).
    """
    similarity = z @ F.normalize(z, dim=1).T  # (VN, VN), of all pairs that tasks may need
    return similarity[rows[:, 1:, :, None], rows[:, :1, None, :]]


def mixed_logits(z: Tensor, images: int, count: int, part: Tensor | None = None) -> Tensor:
    """Return the similarities (VN, H) of embeddings to negatives mixed with them.

    Parameters
    ----------
    z
        (VN, d) embeddings; row v N + i is of image i.
    images
        N.
    count
        H: the embeddings of other images that are nearest to an embedding are mixed with it. The
        gradient flows through both.
    part
        (VN, H) part of the embedding in each; None draws them from [0, 0.5).
    """
    image = torch.arange(len(z), device=z.device) % images  # (VN,)
    with torch.no_grad():
        similarity = z @ F.normalize(z, dim=1).T  # (VN, VN)
        similarity.masked_fill_(image[:, None] == image, -torch.inf)
        nearest = similarity.topk(count, dim=1).indices  # (VN, H)
        if part is None:
            part = MOST * torch.rand(nearest.shape, device=z.device, dtype=z.dtype)
    mixed = F.normalize(mix(z, z[nearest], part), dim=2)  # (VN, H, d)
    return (mixed @ z[:, :, None]).squeeze(2)


class TaskHead(nn.Module):
    """One block of self-attention over all embeddings of a task, with a residual and LayerNorm.

    Projections are linear, so they are computed once for each embedding and not for each task: the
    output layer is applied to the values before the attention, which changes nothing.

    Parameters
    ----------
    width
        d.
    """

    DROPOUT = 0.2  # of what attention adds to an embedding
    ATTENTION_DROPOUT = 0.1

    def __init__(self, width: int) -> None:
        super().__init__()
        self.query = nn.Linear(width, width, bias=False)
        self.key = nn.Linear(width, width, bias=False)
        self.value = nn.Linear(width, width, bias=False)
        self.out = nn.Linear(width, width)
        self.norm = nn.LayerNorm(width)
        for layer in (self.query, self.key, self.value, self.out):
            nn.init.xavier_normal_(layer.weight)

    def forward(self, z: Tensor, rows: Tensor) -> Tensor:
        """Return the embeddings (T, L, d) of tasks with rows (T, L) of z (n, d)."""
        scores = self.query(z) @ self.key(z).T / math.sqrt(z.shape[1])  # (n, n)
        attention = scores[rows[:, :, None], rows[:, None]].softmax(dim=2)  # (T, L, L)
        attention = F.dropout(attention, self.ATTENTION_DROPOUT, self.training)
        values = F.linear(self.value(z), self.out.weight)  # (n, d)
        # Without dropout the rows of the attention sum to one; the bias is added once in any case.
        added = attention @ values[rows] + self.out.bias  # (T, L, d)
        result: Tensor = self.norm(F.dropout(added, self.DROPOUT, self.training) + z[rows])
        return result

    def logits(self, z: Tensor, rows: Tensor) -> Tensor:
        """Return what `episode_logits` does, of the embeddings after the attention."""
        T, V, n = rows.shape
        tokens = self(z, rows.flatten(1)).view(T, V, n, -1)
        shots = F.normalize(tokens[:, 0], dim=2)  # (T, n, d)
        return torch.einsum("tvnd,tmd->tvnm", tokens[:, 1:], shots)
