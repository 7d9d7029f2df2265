"""PsCo: unsupervised meta-learning via few-shot pseudo-supervised contrastive learning.

The paper (Jang, Lee and Shin, ICLR 2023) in one file, in its order and with its letters:

    f, g, h     backbone, projector, predictor (θ); their EMA copies (φ) give the keys
    x1, x2      two views of the mini-batch, N images each
    q, z        (N, d) query and momentum representations, of unit length
    queue       (M, d) momentum representations of earlier mini-batches
    A_tilde     (N, M) soft assignment of queue items to pseudo-labels, Eq. (4)
    s, A        (NK, d) selected shots and (N, NK) their 0/1 pseudo-label matrix

Eq. (1), the contrastive loss, is `contrastive_loss`; Eq. (4), the assignment, is `sinkhorn`. Both
are in ``psco.ops``, in a plain form and a fast one, and are what training calls. What goes beyond
the paper is in ``psco.methods.psco_extended``.
"""

from __future__ import annotations

from functools import reduce
from typing import Literal, NamedTuple

import torch
from torch import Tensor

from psco.methods.base import (
    Batch,
    Logs,
    Method,
    embedding_std,
    require,
    require_momentum,
    require_positive,
)
from psco.methods.byol import byol_loss
from psco.methods.moco import moco_loss
from psco.methods.momentum import EMA, Buffers, MomentumQueue
from psco.networks.networks import Networks
from psco.ops.contrast import PseudoLabels, contrastive_loss, pseudo_task
from psco.ops.sinkhorn import Plan, Similarity, sinkhorn
from psco.ops.top_k import select_shots, shot_overlap


class Chosen(NamedTuple):
    """The queue items that the pseudo-labels of a mini-batch have chosen as shots."""

    z: Tensor  # (N, d)
    queue: Tensor  # (M, d)
    shots: Tensor  # (N, K) int64 rows of the queue


class PsCo(Method):
    """Pseudo-supervised contrast: Algorithm 1 with its networks and its queue.

    Parameters
    ----------
    networks
        f, g and h; without h for that ablation.
    queue_size, shots
        M and K: momentum representations remembered, and shots selected for a pseudo-label.
    momentum
        m of the moving average φ ← m φ + (1 − m) θ.
    temperature, moco_temperature
        τ_PsCo and τ_MoCo.
    sinkhorn_epsilon, sinkhorn_iterations
        See `sinkhorn`.
    auxiliary
        Loss added to L_PsCo: ``moco``, ``byol`` or ``none`` (or None).
    momentum_network
        False: the online network itself gives z, without gradient (ablation).
    sinkhorn
        False: the bare similarities replace the Sinkhorn plan (ablation).
    sample_shots
        True: shots are drawn in proportion to the plan instead of top-K (ablation).
    batch_negatives
        See `moco_loss`.
    ema_first
        Whether the moving average is updated before the forward pass or after the loss.
    ema_buffers
        What an update does with BatchNorm's running statistics, see `EMA`.
    """

    title, kind = "PsCo", "unsupervised"
    rule, transfer_rule = "prototype", "adapt"
    paper = "Jang, Lee and Shin, ICLR 2023"
    summary = "contrasts queries with pseudo-labelled shots from a queue of past embeddings"

    def __init__(
        self,
        networks: Networks,
        queue_size: int = 16384,
        shots: int = 4,
        momentum: float = 0.99,
        temperature: float = 1.0,
        moco_temperature: float = 0.2,
        sinkhorn_epsilon: float = 0.05,
        sinkhorn_iterations: int = 3,
        auxiliary: Literal["moco", "byol", "none"] | None = "moco",
        momentum_network: bool = True,
        sinkhorn: bool = True,
        sample_shots: bool = False,
        batch_negatives: bool = False,
        ema_first: bool = True,
        ema_buffers: Buffers = "copy",
    ) -> None:
        super().__init__(networks)
        require_momentum(momentum)
        require_positive(temperature=temperature, moco_temperature=moco_temperature)
        require_positive(sinkhorn_epsilon=sinkhorn_epsilon, sinkhorn_iterations=sinkhorn_iterations)
        allowed = f"between 1 and queue_size = {queue_size}"
        require(1 <= shots <= queue_size, f"shots must be {allowed}, got {shots}")
        valid = auxiliary in ("moco", "byol", "none", None)
        require(valid, f"auxiliary must be 'moco', 'byol' or 'none', got {auxiliary!r}")
        collapses = auxiliary == "byol" and not self.has_predictor
        require(not collapses, "auxiliary='byol' collapses without a predictor: give one")
        if momentum_network:
            self.ema = EMA(self.without_predictor(), ema_buffers)
        self.queue = MomentumQueue(queue_size, self.dim)
        self.shots = shots
        self.momentum = momentum
        self.temperature = temperature
        self.moco_temperature = moco_temperature
        self.sinkhorn_epsilon = sinkhorn_epsilon
        self.sinkhorn_iterations = sinkhorn_iterations
        self.auxiliary = auxiliary
        self.momentum_network = momentum_network
        self.sinkhorn = sinkhorn
        self.sample_shots = sample_shots
        self.batch_negatives = batch_negatives
        self.ema_first = ema_first

    # ------------------------------------------------------------------------------- Algorithm 1

    def loss(self, batch: Batch) -> tuple[Tensor, Logs]:
        """Return L_PsCo plus the auxiliary loss, then remember the keys.

        Logged are the parts ``psco`` and ``moco`` or ``byol``; ``overlap``, see `shot_overlap`;
        ``embedding_std`` of the queries; and, given labels, ``purity``: the fraction of the shots
        whose true class is that of their query. No loss reads a label.
        """
        x1, x2 = batch.view_a, batch.view_b
        self.check_lengths(len(x1), len(x2))
        if self.ema_first:
            self.update_ema(batch)  # φ ← m φ + (1 − m) θ
        q = self.query(x1)  # (N, d)   Normalize(h∘g∘f)
        with torch.no_grad():
            z = self.ema.key(x2) if self.momentum_network else self.key(x2)  # (N, d)
            queue = self.queue.live(like=z)  # (M, d)
            A_tilde = self.assign(z, queue)  # (N, M)   Eq. (4)
            shots = select_shots(A_tilde, self.shots, self.sample_shots)  # (N, K)
            del A_tilde  # the largest tensor of a step
            chosen = Chosen(z, queue, shots)
            s, A = self.pseudo_task(chosen)  # (NK, d), (N, NK)
        losses = self.losses(q, s, A, chosen)  # Eqs. (5) and (6)
        logs = {name: loss.detach() for name, loss in losses.items()}
        logs |= self.diagnostics(q, shots, A, batch.labels)
        if self.training:
            self.queue.push(z, batch.labels)
        if not self.ema_first:
            self.update_ema(batch)
        return reduce(torch.add, losses.values()), logs

    def update_ema(self, batch: Batch) -> None:
        """Move φ one step towards θ: in training, once a step."""
        if self.momentum_network and self.training and batch.starts_step:
            self.ema.update(self, self.momentum)

    def assign(self, z: Tensor, queue: Tensor) -> Tensor | Plan:
        """Assign queue items to pseudo-labels (Section 3.1): (N, M), each row up to a factor."""
        similarity = Similarity(z, queue)  # (N, M)   z @ queue.T
        if self.sinkhorn:
            return sinkhorn(similarity, self.sinkhorn_epsilon, self.sinkhorn_iterations)
        logits = similarity.over(self.sinkhorn_epsilon)
        return logits.softmax(dim=1) if self.sample_shots else logits

    def pseudo_task(self, chosen: Chosen) -> tuple[Tensor, PseudoLabels]:
        """Return the shots s (NK, d) and their pseudo-labels A (N, NK)."""
        return pseudo_task(chosen.queue, chosen.shots)

    def losses(self, q: Tensor, s: Tensor, A: PseudoLabels, chosen: Chosen) -> dict[str, Tensor]:
        """Return L_PsCo of Eq. (5) and the auxiliary loss, by name."""
        losses = {"psco": contrastive_loss(q, s, A, self.temperature)}
        return losses | self.auxiliary_loss(q, chosen)

    def auxiliary_loss(self, q: Tensor, chosen: Chosen) -> dict[str, Tensor]:
        """Return L_MoCo of Eq. (6), or the loss that replaces it, by name."""
        z, queue, _ = chosen
        if self.auxiliary == "moco":
            return {"moco": moco_loss(q, z, queue, self.moco_temperature, self.batch_negatives)}
        return {"byol": byol_loss(q, z)} if self.auxiliary == "byol" else {}

    def diagnostics(self, q: Tensor, shots: Tensor, A: PseudoLabels, labels: Tensor | None) -> Logs:
        """Return scalars that describe the pseudo-task; nothing learns from them."""
        logs = {"overlap": shot_overlap(shots, len(self.queue.keys))}
        logs["embedding_std"] = embedding_std(q)
        if labels is not None:
            logs["purity"] = A.fraction(self.queue.labels[shots] == labels[:, None])
        return logs

    def check_lengths(self, a: int, b: int) -> None:
        """Raise InputError unless the views are of the same images."""
        require(a == b, f"view_a and view_b must have the same length, got {a} and {b}")

    # ---------------------------------------------------------------------- Section 3.3: meta-test

    def query_head(self, features: Tensor) -> Tensor:
        """Return Normalize(h∘g) of features of the backbone (B, width): (B, d)."""
        return self.predict(features)

    def support_head(self, features: Tensor) -> Tensor:
        """Return Normalize(g) of features of the backbone (B, width): (B, d)."""
        return self.project(features)
