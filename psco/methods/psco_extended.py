"""PsCo with options that are not in the paper; all are off by default.

The method ``psco`` of recipes is this class. With its defaults it runs ``psco.methods.psco`` as it
stands: each option overrides one hook of it.
"""

from __future__ import annotations

from typing import Any, ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor

from psco.methods.base import METHODS, Batch, Logs, require, require_momentum
from psco.methods.moco import moco_loss
from psco.methods.momentum import FillingQueue, momentum_at
from psco.methods.psco import Chosen, PsCo
from psco.networks.networks import Networks
from psco.ops.contrast import PseudoLabels
from psco.ops.mixing import contrast_with_mixed
from psco.ops.ranks import gather


@METHODS.register("psco")
class ExtendedPsCo(PsCo):
    """PsCo and what can be added to it.

    Parameters
    ----------
    networks
        As of `PsCo`.
    dim
        d; None takes it from the networks.
    momentum_end
        m at the end of the run, see `momentum_at`; None keeps ``momentum``.
    filled_queue
        True: while the queue is not full, only keys of earlier batches take part, and not the
        random ones it starts with.
    own_view
        True: the query's own key in z is one more shot of its pseudo-label.
    reciprocal
        r: a shot counts only if the query is among the r keys of the batch nearest to it, see
        `mutual_shots`; others leave the pseudo-task. A query that would be left without any keeps
        its best shot, or with ``own_view`` its own key. None lets all shots count. The log
        ``mutual`` is the fraction of the shots that count.
    spare_shots
        True: the shots of a query are not among its negatives in the MoCo loss.
    mixed_negatives
        Further negatives of a query in the MoCo loss: its nearest keys of the queue, each mixed
        with the query, see `contrast_with_mixed`. 0 for none.
    paper
        Options of `PsCo`.
    """

    takes_more_views = True

    def __init__(
        self,
        networks: Networks,
        dim: int | None = None,
        momentum_end: float | None = None,
        filled_queue: bool = False,
        own_view: bool = False,
        reciprocal: int | None = None,
        spare_shots: bool = False,
        mixed_negatives: int = 0,
        **paper: Any,
    ) -> None:
        if dim is not None:
            f, g, h = networks.backbone, networks.projector, networks.predictor
            networks = Networks(f, g, h, dim=dim)
        super().__init__(networks, **paper)
        require_momentum(self.momentum, momentum_end)
        valid = reciprocal is None or reciprocal >= 1
        require(valid, f"reciprocal must be at least 1 or null, got {reciprocal}")
        valid = not spare_shots or self.auxiliary == "moco"
        require(valid, f"spare_shots requires auxiliary='moco', got {self.auxiliary!r}")
        fits = 0 <= mixed_negatives <= len(self.queue.keys) - self.shots * spare_shots
        require(fits, f"mixed_negatives must be between 0 and queue_size, got {mixed_negatives}")
        valid = not mixed_negatives or (self.auxiliary == "moco" and not self.batch_negatives)
        require(valid, "mixed_negatives requires auxiliary='moco' and batch_negatives=false")
        if filled_queue:
            self.queue = FillingQueue(self.queue, least=self.shots)
        self.momentum_end = momentum_end
        self.own_view = own_view
        self.reciprocal = reciprocal
        self.spare_shots = spare_shots
        self.mixed_negatives = mixed_negatives

    def check_lengths(self, a: int, b: int) -> None:
        """Raise InputError unless the views are of the same images; there may be several online."""
        equal = "view_a and view_b must have the same length, or view_a a multiple of it"
        require(a > 0 and b > 0 and a % b == 0, f"{equal}, got {a} and {b}")

    def update_ema(self, batch: Batch) -> None:
        """Move φ one step towards θ, with a momentum that may change over the run."""
        if self.momentum_network and self.training and batch.starts_step:
            momentum = momentum_at(batch.progress, self.momentum, self.momentum_end)
            self.ema.update(self, momentum)

    def pseudo_task(self, chosen: Chosen) -> tuple[Tensor, PseudoLabels]:
        """Return the task of the paper, without shots that are not mutual and with own keys."""
        s, A = super().pseudo_task(chosen)
        if self.reciprocal is None and not self.own_view:
            return s, A
        z = gather(chosen.z)  # (N, d)
        counted = None  # (N, K), which shots take part
        if self.reciprocal is not None:
            counted = mutual_shots(z, s, self.reciprocal)
            if not self.own_view:  # no query without a shot: its best one always counts
                counted[:, 0] |= ~counted.any(dim=1)
        if self.own_view:  # shot K + 1 of every query
            s = torch.cat([s.view(len(z), -1, s.shape[1]), z[:, None]], dim=1).flatten(0, 1)
            counted = None if counted is None else F.pad(counted, (0, 1), value=True)
        return s, A._replace(counted=counted)

    def losses(self, q: Tensor, s: Tensor, A: PseudoLabels, chosen: Chosen) -> dict[str, Tensor]:
        """Return the losses, each the mean over the online views q ((V − 1) N, d).

        All online views of an image are queries with its pseudo-label: each is contrasted with the
        shots that the momentum view has selected, and with the key of the momentum view.
        """
        views = [
            super(ExtendedPsCo, self).losses(v, s, A, chosen) for v in torch.split(q, len(chosen.z))
        ]
        if len(views) == 1:
            return views[0]
        return {name: torch.stack([view[name] for view in views]).mean() for name in views[0]}

    def auxiliary_loss(self, q: Tensor, chosen: Chosen) -> dict[str, Tensor]:
        """Return the auxiliary loss, with other negatives if that is wanted."""
        z, queue, shots = chosen
        spared = shots if self.spare_shots else None
        if self.mixed_negatives:
            count = min(self.mixed_negatives, len(queue) - self.shots * self.spare_shots)
            tau = self.moco_temperature
            return {"moco": contrast_with_mixed(q, z, queue, tau, count, spared)}
        if spared is None:
            return super().auxiliary_loss(q, chosen)
        return {"moco": moco_loss(q, z, queue, self.moco_temperature, self.batch_negatives, shots)}

    def diagnostics(self, q: Tensor, shots: Tensor, A: PseudoLabels, labels: Tensor | None) -> Logs:
        """Return the diagnostics of the paper's task, and how many shots are mutual."""
        logs = super().diagnostics(q, shots, A, labels)
        if A.counted is not None:
            logs["mutual"] = A.counted[:, : self.shots].float().mean()
        return logs


@METHODS.register("psco-byol", auxiliary="byol")
class PsCoOnBYOL(ExtendedPsCo):
    """PsCo as the paper adds it to BYOL at ImageNet scale (Section 4.3)."""

    title = "PsCo on BYOL"
    summary = "PsCo with BYOL's prediction as the auxiliary loss instead of MoCo's contrast"
    settings: ClassVar = {"heads": {"predictor": True}}  # it collapses without one


@torch.no_grad()
def mutual_shots(z: Tensor, s: Tensor, nearest: int) -> Tensor:
    """Return which shots are near to their query from their own side too.

    Parameters
    ----------
    z
        (N, d) keys of the batch, of unit length.
    s
        (NK, d) selected shots of unit length, those of one query after those of the other.
    nearest
        At least 1: the query must be among the ``nearest`` keys of the batch that are nearest to
        the shot.

    Returns
    -------
    Tensor
        (N, K) bool.
    """
    require(nearest >= 1, f"nearest must be at least 1, got {nearest}")
    sim = (s @ z.T).view(len(z), -1, len(z))  # (N, K, N)
    own = sim.diagonal(dim1=0, dim2=2).T  # (N, K)
    return (sim > own[:, :, None]).sum(dim=2) < nearest
