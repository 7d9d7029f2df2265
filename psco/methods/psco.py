"""PsCo: unsupervised meta-learning via few-shot pseudo-supervised contrastive learning.

The paper (Jang, Lee and Shin, ICLR 2023) in one file, in its order and with its letters:

    f, g, h     backbone, projector, predictor (θ); f_ema, g_ema their momentum twins (φ)
    x1, x2      two views of the mini-batch, N images each
    q, z        (N, d) query representations, momentum representations, of unit length
    queue       (M, d) momentum representations of earlier mini-batches
    A_tilde     (N, M) soft assignment of queue items to pseudo-labels
    s, A        (NK, d) selected shots and (N, NK) their 0/1 pseudo-label matrix

Where several processes share a mini-batch, q, z and A_tilde have the rows of one of them. Shots and
remembered keys are those of all (`gather`), and so are the sums over the columns of A_tilde.
"""

from __future__ import annotations

from functools import reduce
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from psco.errors import InputError
from psco.methods.base import Method, output_dim, require, require_momentum, spread
from psco.methods.momentum import Buffers, FillingQueue, MomentumQueue, MomentumTwin, momentum_at
from psco.ops.contrast import contrast_with_queue, contrast_with_target
from psco.ops.native import Plan
from psco.ops.ranks import gather, own_rows
from psco.ops.sinkhorn import (
    column_factors,
    fits,
    largest_columns,
    log_sinkhorn,
    ranking_plan,
    row_factors,
    scaled_similarity,
    written,
)

# ---------------------------------------------------------------- Section 2.2: contrastive learning


def contrastive_loss(q: Tensor, k: Tensor, positives: Tensor, temperature: float) -> Tensor:
    """Contrast queries with keys, Eq. (1), for any number of positives per query.

    Parameters
    ----------
    q
        (N, d) query representations of unit length.
    k
        (M, d) key representations of unit length.
    positives
        (N, M) matrix A of zeros and ones (or bools): which key is a positive of which query.
    temperature
        τ > 0.

    Returns
    -------
    Tensor
        The mean over the queries, a scalar.

    Raises
    ------
    InputError
        If a query has no positive key, or the shapes or the temperature do not fit.
    """
    if positives.shape != (len(q), len(k)):
        raise InputError(
            f"positives must be ({len(q)}, {len(k)}) for {len(q)} queries and {len(k)} keys, "
            f"not {tuple(positives.shape)}"
        )
    require(temperature > 0, f"temperature must be > 0, not {temperature}")
    empty = (positives.sum(dim=1) == 0).nonzero()
    if len(empty):
        raise InputError(f"query {int(empty[0])} has no positive key: every row of A needs a one")
    return _contrast(q @ k.T / temperature, positives.to(q.dtype))


def _contrast(logits: Tensor, A: Tensor) -> Tensor:  # (N, M), (N, M) -> ()
    return (logits.logsumexp(dim=1) - (logits * A).sum(dim=1) / A.sum(dim=1)).mean()


# --------------------------------------------------- Section 3.1: online pseudo-task construction


@torch.no_grad()
def sinkhorn(similarity: Tensor, epsilon: float = 0.05, iterations: int = 3) -> Tensor:
    """Solve the entropy-regularised assignment of Eq. (4), approximately, by Sinkhorn-Knopp.

    Finds P = diag(u) exp(similarity / ε) diag(v) by alternately fitting the columns (v) and the
    rows (u) to their marginals; only the two scaling vectors change from round to round.

    Parameters
    ----------
    similarity
        (N, M) finite numbers, of any size and floating type.
    epsilon
        Weight ε > 0 of the entropy: smaller is closer to a hard assignment.
    iterations
        Rounds of (columns, rows), at least 1.

    Returns
    -------
    Tensor
        (N, M) transport plan, non-negative: every row sums to 1/N, every column approaches 1/M.
        float64 for float64 input, else float32, as half precision cannot hold 1/(NM).
    """
    require(epsilon > 0, f"epsilon must be > 0, not {epsilon}")
    require(iterations >= 1, f"iterations must be at least 1, not {iterations}")
    sim = similarity if similarity.dtype == torch.float64 else similarity.float()
    top = sim.max()
    if not fits(float(top.double() - sim.min().double()) / epsilon, sim.dtype):
        return log_sinkhorn(sim, epsilon, iterations)
    kernel = (sim - top).div_(epsilon).exp_()  # (N, M)
    v = column_factors(kernel, iterations)  # (M,)
    u = row_factors(kernel, v)  # (N,)
    return kernel.mul_(u[:, None]).mul_(v)


@torch.no_grad()
def select_shots(
    plan: Tensor | Plan, k: int, sample: bool = False, generator: torch.Generator | None = None
) -> Tensor:
    """Select k different queue items for every pseudo-label.

    Parameters
    ----------
    plan
        (N, M) assignment, non-negative when ``sample`` is set; as a matrix, or as `ranking_plan`
        gives it.
    k
        Shots per row, 1 <= k <= M.
    sample
        Draw without replacement in proportion to the row instead of taking its k largest entries
        (the ablation's alternative to top-K).
    generator
        Source of the random numbers when ``sample`` is set.

    Returns
    -------
    Tensor
        (N, k) int64 indices into the queue, the most likely first.
    """
    M = plan.shape[1]
    require(1 <= k <= M, f"shots must be between 1 and the queue size {M}, not {k}")
    scores = plan
    if sample:  # the k largest of log p + Gumbel noise are k draws without replacement
        scores = written(plan)
        noise = torch.empty_like(scores).exponential_(generator=generator)
        scores = scores.log() - noise.log()
    return largest_columns(scores, k)


def shot_overlap(shots: Tensor, queue_size: int) -> Tensor:
    """Give the share of the (N, K) shots that another pseudo-label has selected too, in [0, 1)."""
    taken = torch.zeros(queue_size, device=shots.device)
    taken.index_fill_(0, shots.flatten(), 1)
    return 1 - taken.sum() / shots.numel()


@torch.no_grad()
def mutual_shots(z: Tensor, s: Tensor, nearest: int) -> Tensor:
    """Tell which shots are near to their query from their own side too (not in the paper).

    Parameters
    ----------
    z
        (N, d) keys of the batch, of unit length.
    s
        (NK, d) selected shots of unit length, those of one query after those of the other.
    nearest
        At least 1: the query must be among so many keys of the batch that are nearest to the shot.

    Returns
    -------
    Tensor
        (N, K) bool.
    """
    require(nearest >= 1, f"nearest must be at least 1, not {nearest}")
    sim = (s @ z.T).view(len(z), -1, len(z))  # (N, K, N)
    own = sim.diagonal(dim1=0, dim2=2).T  # (N, K)
    return (sim > own[:, :, None]).sum(dim=2) < nearest


# ---------------------------------------------------------------------- Section 3.2: meta-training


def pseudo_supervised_loss(
    q: Tensor,
    s: Tensor,
    temperature: float,
    counts: Tensor | None = None,
    first: int = 0,
    total: int | None = None,
) -> Tensor:
    """Contrast every query with its own K shots among those of all queries, Eq. (5).

    The matrix A of Eq. (1) need not be written down: the ones of row n are at columns nK … nK+K−1.

    Parameters
    ----------
    q
        (N, d) query representations of unit length.
    s
        (NK, d) shots of unit length, those of a query side by side.
    temperature
        τ_PsCo > 0.
    counts
        (N, K) bool, which shots take part, at least one for each query; None for all (the paper).
    first, total
        If q has only some rows of the mini-batch: the first of them, and N.
    """
    if counts is None:  # the mean of the logits of own shots is the logit of their mean
        N = total or len(q)
        own = s if len(s) == N else s.view(N, -1, s.shape[1]).mean(dim=1)  # (N, d)
        return contrast_with_target(q, own[first : first + len(q)], s, temperature)
    logits = q @ s.T / temperature  # (N, NK)
    own = logits.view(len(q), total or len(q), -1).diagonal(first)  # (K, N)
    mine = counts[first : first + len(q)]  # (N, K)
    own = (own * mine.T).sum(dim=0) / mine.sum(dim=1)  # (N,)
    logits = logits.masked_fill(~counts.flatten(), -torch.inf)
    return (logits.logsumexp(dim=1) - own).mean()


def moco_loss(
    q: Tensor,
    z: Tensor,
    queue: Tensor,
    temperature: float,
    batch_negatives: bool = False,
    spared: Tensor | None = None,
) -> Tensor:
    """Contrast every query (N, d) with its own key in z (N, d) among negatives, Eq. (6).

    The negatives are the queue (M, d); with ``batch_negatives`` also the keys of the other images
    of the batch, as the paper's text has it. The authors' code, and MoCo, use the queue only.
    ``spared`` (N, K) are rows of the queue that are no negatives of the query (not in the paper).
    """
    return contrast_with_queue(q, z, queue, temperature, batch_negatives, spared)


def byol_loss(q: Tensor, z: Tensor) -> Tensor:
    """Pull every query (N, d) to its key: the squared distance, twice for the two directions."""
    return 4 - 4 * (q * z).sum(dim=1).mean()


class PsCo(Method):
    """Pseudo-supervised contrast: Algorithm 1 with its networks and its queue.

    Parameters
    ----------
    backbone, projector
        f and g; any modules that map images to (N, width) and on to (N, d).
    predictor
        h, or None to leave it out (ablation).
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
        What an update does with BatchNorm's running statistics, see `MomentumTwin`.
    dim
        d; None reads it off the last layer of the projector.
    momentum_end
        m at the end of the run, see `momentum_at`; None keeps ``momentum``. This option and those
        below depart from the paper and are off by default.
    filled_queue
        True: while the queue is not full, only keys of earlier batches take part, and not the
        random ones it starts with.
    own_view
        True: the query's own key in z is one more shot of its pseudo-label.
    reciprocal
        r: a shot counts only if the query is among the r keys of the batch nearest to it, see
        `mutual_shots`; others leave the pseudo-task. A query that would be left without any keeps
        its best shot, or with ``own_view`` its own key. None lets all shots count.
    spare_shots
        True: the shots of a query are not among its negatives in the MoCo loss.
    """

    title, kind = "PsCo", "unsupervised"
    rule, transfer_rule = "prototype", "adapt"
    paper = "Jang, Lee and Shin, ICLR 2023"
    summary = "contrasts queries with pseudo-labelled shots from a queue of past embeddings"

    def __init__(
        self,
        backbone: nn.Module,
        projector: nn.Module,
        predictor: nn.Module | None,
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
        dim: int | None = None,
        momentum_end: float | None = None,
        filled_queue: bool = False,
        own_view: bool = False,
        reciprocal: int | None = None,
        spare_shots: bool = False,
    ) -> None:
        super().__init__(backbone, projector, predictor)
        require_momentum(momentum, momentum_end)
        allowed = f"between 1 and queue_size = {queue_size}"
        require(1 <= shots <= queue_size, f"shots must be {allowed}, not {shots}")
        for name in ("temperature", "moco_temperature", "sinkhorn_epsilon", "sinkhorn_iterations"):
            require(locals()[name] > 0, f"{name} must be > 0, not {locals()[name]}")
        known = auxiliary in ("moco", "byol", "none", None)
        require(known, f"auxiliary must be 'moco', 'byol' or 'none', not {auxiliary!r}")
        collapses = auxiliary == "byol" and predictor is None
        require(not collapses, "auxiliary 'byol' collapses without a predictor: give one")
        some = reciprocal is None or reciprocal >= 1
        require(some, f"reciprocal must be at least 1 or null, not {reciprocal}")
        idle = spare_shots and auxiliary != "moco"
        require(not idle, f"spare_shots is about auxiliary 'moco', which is {auxiliary!r} here")
        self.momentum_network = momentum_network
        if momentum_network:
            self.momentum_backbone = MomentumTwin(backbone, ema_buffers)
            self.momentum_projector = MomentumTwin(projector, ema_buffers)
        kind = FillingQueue if filled_queue else MomentumQueue
        self.queue = kind(queue_size, dim or output_dim(projector))
        self.shots, self.momentum = shots, momentum
        self.temperature, self.moco_temperature = temperature, moco_temperature
        self.sinkhorn_epsilon, self.sinkhorn_iterations = sinkhorn_epsilon, sinkhorn_iterations
        self.auxiliary, self.sinkhorn, self.sample_shots = auxiliary, sinkhorn, sample_shots
        self.batch_negatives, self.ema_first = batch_negatives, ema_first
        self.momentum_end, self.own_view = momentum_end, own_view
        self.reciprocal, self.spare_shots = reciprocal, spare_shots

    def loss(
        self, view_a: Tensor, view_b: Tensor, labels: Tensor | None = None, update: bool = True
    ) -> dict[str, Tensor]:
        """Run Algorithm 1 on two views of a mini-batch, then remember its keys.

        In training mode a call moves the momentum network and the queue on; in evaluation mode
        nothing changes.

        Parameters
        ----------
        view_a, view_b
            (N, C, H, W) views of the same N images; view_b, the weaker one, is for the momentum
            network.
        labels
            (N,) true classes, for the purity diagnostic only: no loss ever reads them.
        update
            False leaves the moving average alone: for all but the first of several mini-batches
            whose gradients are accumulated.

        Returns
        -------
        dict
            Scalars: ``total`` (with gradient), its parts ``psco`` and ``moco`` or ``byol``, and
            the diagnostics ``overlap`` (see `shot_overlap`), ``spread`` of the queries and, given
            labels, ``purity``: the share of the shots that count whose true class is that of their
            query. With ``reciprocal`` also ``mutual``: the share of the shots that count.
        """
        if len(view_a) != len(view_b):
            raise InputError(f"two views of one batch: {len(view_a)} and {len(view_b)} images")
        f, g, h = self.backbone, self.projector, self.predictor
        f_ema, g_ema = (
            (self.momentum_backbone, self.momentum_projector) if self.momentum_network else (f, g)
        )
        update = update and self.training
        if update and self.ema_first:
            self.update_momentum_network()

        x1, x2 = view_a, view_b
        q = F.normalize(h(g(f(x1))), dim=1)  # (N, d)
        with torch.no_grad():
            z = F.normalize(g_ema(f_ema(x2)), dim=1)  # (N, d)
            queue = self.queue.live(self.shots).to(z.dtype)  # (M, d)
            A_tilde = self._assign(z, queue)  # (N, M)
            shots = select_shots(A_tilde, self.shots, sample=self.sample_shots)  # (N, K)
            del A_tilde  # the largest tensor of a step
            keys, all_shots, rows = gather(z), gather(shots), own_rows(len(z))
            s = queue.index_select(0, all_shots.flatten())  # (NK, d)
            s, counts = self._change_task(s, keys)  # not in the paper, and nothing by default
        whole = (rows.start, len(keys))
        losses = {"psco": pseudo_supervised_loss(q, s, self.temperature, counts, *whole)}
        if self.auxiliary == "moco":
            spared = shots if self.spare_shots else None
            negatives = queue
            if self.batch_negatives:  # the keys that are not in z
                negatives = torch.cat([queue, keys[: rows.start], keys[rows.stop :]])
            losses["moco"] = moco_loss(
                q, z, negatives, self.moco_temperature, self.batch_negatives, spared
            )
        elif self.auxiliary == "byol":
            losses["byol"] = byol_loss(q, z)

        report = {"total": reduce(torch.add, losses.values())}
        report |= {name: loss.detach() for name, loss in losses.items()}
        report["overlap"], report["spread"] = shot_overlap(all_shots, len(queue)), spread(q)
        if counts is not None:
            report["mutual"] = counts[:, : self.shots].float().mean()
        if labels is not None:
            labels = gather(labels)
            weight = torch.ones_like(all_shots) if counts is None else counts[:, : self.shots]
            right = self.queue.labels[all_shots] == labels[:, None]
            report["purity"] = (right * weight).sum() / weight.sum().clamp(min=1)
        if self.training:
            self.queue.push(keys, labels)
        if update and not self.ema_first:
            self.update_momentum_network()
        return report

    def update_momentum_network(self) -> None:
        """Move φ one step towards θ; nothing to do without a momentum network."""
        if self.momentum_network:
            m = momentum_at(self.done, self.momentum, self.momentum_end)
            self.momentum_backbone.update(self.backbone, m)
            self.momentum_projector.update(self.projector, m)

    def _assign(self, z: Tensor, queue: Tensor) -> Tensor | Plan:  # (N, M), rows up to a factor
        if self.sinkhorn:
            rounds = self.sinkhorn_iterations
            return ranking_plan(z, queue, self.sinkhorn_epsilon, rounds, shared=True)
        sim = scaled_similarity(z, queue, self.sinkhorn_epsilon)  # (N, M), z @ queue.T / ε
        return sim.softmax(dim=1) if self.sample_shots else sim

    def _change_task(self, s: Tensor, z: Tensor) -> tuple[Tensor, Tensor | None]:
        counts = None  # (N, K), which shots take part
        if self.reciprocal is not None:
            counts = mutual_shots(z, s, self.reciprocal)
            if not self.own_view:  # no query without a shot: its best one counts in any case
                counts[:, 0] |= ~counts.any(dim=1)
        if self.own_view:  # shot K + 1 of every query
            s = torch.cat([s.view(len(z), -1, s.shape[1]), z[:, None]], dim=1).flatten(0, 1)
            counts = None if counts is None else F.pad(counts, (0, 1), value=True)
        return s, counts

    # ---------------------------------------------------------------------- Section 3.3: meta-test

    def query_head(self, features: Tensor) -> Tensor:
        """Give Normalize(h∘g) of features of the backbone (B, width): (B, d)."""
        return F.normalize(self.predictor(self.projector(features)), dim=1)

    def support_head(self, features: Tensor) -> Tensor:
        """Give Normalize(g) of features of the backbone (B, width): (B, d)."""
        return F.normalize(self.projector(features), dim=1)


def prototypes(support: Tensor, labels: Tensor, ways: int) -> Tensor:
    """Sum the supports of every class and normalise: c_y.

    Parameters
    ----------
    support
        (..., S, d) support representations z_s; any number of tasks in front.
    labels
        (..., S) int64 classes y_s in 0..ways−1.
    ways
        Number of classes.

    Returns
    -------
    Tensor
        (..., ways, d) of unit length.
    """
    members = F.one_hot(labels, ways).to(support.dtype)  # (..., S, ways)
    return F.normalize(members.transpose(-1, -2) @ support, dim=-1)
