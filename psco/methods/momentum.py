"""The two memories of a momentum method: the EMA copy of a network and the queue of its keys."""

from __future__ import annotations

import copy
import math
from typing import Any, Literal, NamedTuple

import torch
from torch import Tensor, nn

from psco.errors import InputError
from psco.networks.frozen import FrozenBackbone
from psco.networks.networks import Networks
from psco.ops.ranks import gather

Buffers = Literal["copy", "average", "own"]


def momentum_at(progress: float, start: float, end: float | None) -> float:
    """Return the momentum m at some point of a run: half a cosine from ``start`` to ``end``.

    Parameters
    ----------
    progress
        Fraction of the run that is over, in [0, 1].
    start, end
        m at the beginning and at the end of the run, in [0, 1]; None for ``start`` throughout.
        BYOL's schedule ends at 1, where the average no longer moves.
    """
    return start if end is None else end - (end - start) * (1 + math.cos(math.pi * progress)) / 2


class _Pairs(NamedTuple):
    """Tensors of an EMA copy and of its source, without those that both share.

    Walking the modules costs as much as averaging them, so it is done once.
    """

    source: nn.Module
    parameters: list[Tensor]
    source_parameters: list[Tensor]
    buffers: list[Tensor]
    source_buffers: list[Tensor]

    @classmethod
    def of(cls, network: nn.Module, source: nn.Module) -> _Pairs:
        theirs, others = dict(source.named_parameters()), dict(source.named_buffers())
        own = {n: p for n, p in network.named_parameters() if p is not theirs[n]}
        kept = {n: b for n, b in network.named_buffers() if b is not others[n]}
        return cls(
            source,
            list(own.values()),
            [theirs[name] for name in own],
            list(kept.values()),
            [others[name] for name in kept],
        )


class EMA(nn.Module):
    """A copy φ of a network θ that follows it, φ ← m φ + (1 − m) θ, and takes no gradient.

    Parameters
    ----------
    source
        The network θ; φ starts as a copy of it. A frozen backbone is shared.
    buffers
        What an update does with BatchNorm's running statistics: ``copy`` those of θ, ``average``
        them like the parameters, or let φ keep its ``own`` from the batches it has seen. In
        training mode φ normalises with the statistics of the batch, so this matters only in
        evaluation mode.
    """

    def __init__(self, source: nn.Module, buffers: Buffers = "copy") -> None:
        super().__init__()
        if buffers not in ("copy", "average", "own"):
            raise InputError(f"buffers must be 'copy', 'average' or 'own', got {buffers!r}")
        frozen: dict[int, Any] = {
            id(m): m for m in source.modules() if isinstance(m, FrozenBackbone)
        }
        self.network = copy.deepcopy(source, frozen).requires_grad_(False)
        self.buffers_policy = buffers
        self._pairs: _Pairs | None = None

    @torch.no_grad()
    def update(self, source: nn.Module, momentum: float) -> None:
        """Move φ towards ``source`` by one step of the average, with 0 <= momentum <= 1.

        ``source`` may hold more than φ: tensors are matched by their names.
        """
        if self._pairs is None or self._pairs.source is not source:
            self._pairs = _Pairs.of(self.network, source)
        pairs, weight = self._pairs, 1 - momentum
        if pairs.parameters:
            torch._foreach_lerp_(pairs.parameters, pairs.source_parameters, weight)
        if self.buffers_policy == "own" or not pairs.buffers:
            return
        theirs = pairs.source_buffers
        if self.buffers_policy == "average":
            both = zip(pairs.buffers, theirs, strict=True)
            theirs = [a.lerp(b, weight) if a.is_floating_point() else b for a, b in both]
        torch._foreach_copy_(pairs.buffers, theirs)

    def _apply(self, *args: Any, **options: Any) -> EMA:
        self._pairs = None  # moving a module elsewhere may replace its buffers
        moved: EMA = super()._apply(*args, **options)  # type: ignore[no-untyped-call]
        return moved

    @torch.no_grad()
    def forward(self, x: Tensor) -> Tensor:
        """Return φ(x) without recording a graph."""
        result: Tensor = self.network(x)
        return result

    @torch.no_grad()
    def key(self, x: Tensor) -> Tensor:
        """Return the keys Normalize(g∘f) of images (B, C, H, W) by φ, a `Networks`: (B, d)."""
        assert isinstance(self.network, Networks)
        return self.network.key(x)


MomentumTwin = EMA  # the name under which the class was first published


class MomentumQueue(nn.Module):
    """A ring of the last M keys, for batches of any size, kept in checkpoints.

    Parameters
    ----------
    size
        Number M of keys; they start as random unit vectors.
    dim
        Length d of a key.

    Attributes
    ----------
    keys
        (M, d). The next key is written at row ``position``, which holds the oldest one.
    labels
        (M,) int64 true class of each key where it is known, else −1. For diagnostics only.
    """

    keys: Tensor
    labels: Tensor
    position: Tensor

    def __init__(self, size: int, dim: int) -> None:
        super().__init__()
        if size < 1:
            raise InputError(f"queue_size must be at least 1, got {size}")
        self.register_buffer("keys", nn.functional.normalize(torch.randn(size, dim), dim=1))
        self.register_buffer("labels", torch.full((size,), -1))
        self.register_buffer("position", torch.zeros((), dtype=torch.int64))

    def live(self, like: Tensor | None = None) -> Tensor:
        """Return the keys (M, d) that take part in a loss, in the number format of ``like``."""
        return self.keys if like is None else self.keys.to(like.dtype)

    @torch.no_grad()
    def push(self, keys: Tensor, labels: Tensor | None = None) -> None:
        """Replace the oldest keys by ``keys`` (B, d) of all processes; at most the last M are kept.

        The ring is replaced, not written to: the graph of a loss still reads the old keys.
        """
        keys = gather(keys)
        size, batch = len(self.keys), len(keys)
        kept = min(size, batch)
        offsets = torch.arange(batch - kept, batch, device=self.keys.device)  # (kept,)
        rows = (self.position + offsets) % size
        if labels is None:
            labels = torch.full((batch,), -1, device=self.keys.device)
        else:
            labels = gather(labels)
        self.keys = self.keys.index_copy(0, rows, keys[batch - kept :].to(self.keys))
        self.labels = self.labels.index_copy(0, rows, labels[batch - kept :].to(self.labels))
        self.position = (self.position + batch) % size


class FillingQueue(MomentumQueue):
    """A queue that is as long as the keys it has been given, until it is full.

    Its random first keys take no part. How many rows are filled is a number on the host, so that no
    step waits for the device; a checkpoint stores it beside the buffers.

    Parameters
    ----------
    queue
        A new queue, whose buffers it takes over.
    least
        Keys that take part in any case, random ones included.
    """

    def __init__(self, queue: MomentumQueue, least: int = 0) -> None:
        nn.Module.__init__(self)
        for name, buffer in queue.named_buffers():
            self.register_buffer(name, buffer)
        self._least, self._filled = least, 0

    def live(self, like: Tensor | None = None) -> Tensor:
        """Return the keys of earlier batches (at least ``least``, at most M; d)."""
        return super().live(like)[: max(self._filled, self._least)]

    def push(self, keys: Tensor, labels: Tensor | None = None) -> None:
        """Add keys, or replace the oldest ones, as `MomentumQueue` does."""
        super().push(keys, labels)
        self._filled = min(len(self.keys), self._filled + len(gather(keys)))

    def get_extra_state(self) -> Tensor:
        """Return what a checkpoint has to store besides the buffers."""
        return torch.tensor(self._filled)

    def set_extra_state(self, state: Tensor) -> None:
        """Restore what `get_extra_state` returned."""
        self._filled = int(state)
