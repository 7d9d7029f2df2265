"""The two memories of a momentum method: the averaged network and the queue of its past keys."""

from __future__ import annotations

import copy
import math
from typing import Any, Literal, NamedTuple

import torch
from torch import Tensor, nn

from psco.errors import InputError

Buffers = Literal["copy", "average", "own"]


def momentum_at(done: float, start: float, end: float | None) -> float:
    """Give the momentum m at a share of the run: by half a cosine from ``start`` to ``end``.

    Parameters
    ----------
    done
        Share of the run that is over, in [0, 1].
    start, end
        m at the beginning and at the end of the run, in [0, 1]; None for ``start`` throughout.
        BYOL's schedule ends at 1, where the average no longer moves.
    """
    return start if end is None else end - (end - start) * (1 + math.cos(math.pi * done)) / 2


class _Pairs(NamedTuple):
    """The tensors of φ and θ: to walk through the modules takes as long as to average them."""

    source: nn.Module
    parameters: list[Tensor]
    source_parameters: list[Tensor]
    buffers: list[Tensor]
    source_buffers: list[Tensor]

    @classmethod
    def of(cls, network: nn.Module, source: nn.Module) -> _Pairs:
        parameters = (list[Tensor](module.parameters()) for module in (network, source))
        buffers = (list(module.buffers()) for module in (network, source))
        return cls(source, *parameters, *buffers)


class MomentumTwin(nn.Module):
    """A network φ that follows another, θ, as φ ← m φ + (1 − m) θ, and takes no gradient.

    Parameters
    ----------
    source
        The network θ; φ starts as a copy of it.
    buffers
        What happens to BatchNorm's running statistics in an update: ``copy`` those of θ,
        ``average`` them like the parameters, or let φ keep its ``own`` from the batches it has
        seen. In training mode φ normalises with the statistics of the batch, so this matters only
        in evaluation mode.
    """

    def __init__(self, source: nn.Module, buffers: Buffers = "copy") -> None:
        super().__init__()
        if buffers not in ("copy", "average", "own"):
            raise InputError(f"buffers must be 'copy', 'average' or 'own', not {buffers!r}")
        self.network = copy.deepcopy(source).requires_grad_(False)
        self.buffers_policy = buffers
        self._pairs: _Pairs | None = None

    @torch.no_grad()
    def update(self, source: nn.Module, momentum: float) -> None:
        """Move φ towards ``source`` (θ) by one step of the average, with 0 <= momentum <= 1."""
        if self._pairs is None or self._pairs.source is not source:
            self._pairs = _Pairs.of(self.network, source)
        pairs, share = self._pairs, 1 - momentum
        if pairs.parameters:
            torch._foreach_lerp_(pairs.parameters, pairs.source_parameters, share)
        if self.buffers_policy == "own" or not pairs.buffers:
            return
        theirs = pairs.source_buffers
        if self.buffers_policy == "average":
            both = zip(pairs.buffers, theirs, strict=True)
            theirs = [a.lerp(b, share) if a.is_floating_point() else b for a, b in both]
        torch._foreach_copy_(pairs.buffers, theirs)

    def _apply(self, *args: Any, **options: Any) -> MomentumTwin:
        self._pairs = None  # what moves a module elsewhere may replace its buffers
        moved: MomentumTwin = super()._apply(*args, **options)  # type: ignore[no-untyped-call]
        return moved

    @torch.no_grad()
    def forward(self, x: Tensor) -> Tensor:
        """Apply φ without recording a graph."""
        result: Tensor = self.network(x)
        return result


class MomentumQueue(nn.Module):
    """A ring of the last M keys, of any batch sizes, kept in checkpoints.

    Parameters
    ----------
    size
        Number M of keys; at the start they are random unit vectors.
    dim
        Length d of a key.

    Attributes
    ----------
    keys
        (M, d). The next key is written at row ``position``, which holds the oldest one.
    labels
        (M,) int64, the true class of each key where it is known, else −1. Diagnostics only.
    """

    keys: Tensor
    labels: Tensor
    position: Tensor

    def __init__(self, size: int, dim: int) -> None:
        super().__init__()
        if size < 1:
            raise InputError(f"queue_size must be at least 1, not {size}")
        self.register_buffer("keys", nn.functional.normalize(torch.randn(size, dim), dim=1))
        self.register_buffer("labels", torch.full((size,), -1))
        self.register_buffer("position", torch.zeros((), dtype=torch.int64))

    def live(self, least: int = 0) -> Tensor:  # noqa: ARG002
        """Give the keys that take part in a loss: all of them, the random ones included."""
        return self.keys

    @torch.no_grad()
    def push(self, keys: Tensor, labels: Tensor | None = None) -> None:
        """Replace the oldest keys by ``keys`` (B, d); of more than M, the last M stay.

        The ring is replaced, not written to: the graph of a loss still reads the old keys.
        """
        size, batch = len(self.keys), len(keys)
        kept = min(size, batch)
        offsets = torch.arange(batch - kept, batch, device=self.keys.device)  # (kept,)
        rows = (self.position + offsets) % size
        if labels is None:
            labels = torch.full((batch,), -1, device=self.keys.device)
        self.keys = self.keys.index_copy(0, rows, keys[batch - kept :].to(self.keys))
        self.labels = self.labels.index_copy(0, rows, labels[batch - kept :].to(self.labels))
        self.position = (self.position + batch) % size


class FillingQueue(MomentumQueue):
    """A queue that is as long as the keys it has been given, until it is full.

    Its random first keys take part in nothing. How many rows are filled is a number of the host,
    so that no step waits for the device; in a checkpoint it lies beside the buffers.
    """

    def __init__(self, size: int, dim: int) -> None:
        super().__init__(size, dim)
        self._filled = 0

    def live(self, least: int = 0) -> Tensor:
        """Give the keys of earlier batches, and random ones where these are fewer than ``least``.

        Returns
        -------
        Tensor
            (at least ``least``, at most M; d).
        """
        return self.keys[: max(self._filled, least)]

    def push(self, keys: Tensor, labels: Tensor | None = None) -> None:
        """Add or replace as `MomentumQueue` does."""
        super().push(keys, labels)
        self._filled = min(len(self.keys), self._filled + len(keys))

    def get_extra_state(self) -> Tensor:
        """Give what a checkpoint has to keep besides the buffers."""
        return torch.tensor(self._filled)

    def set_extra_state(self, state: Tensor) -> None:
        """Take what `get_extra_state` gave."""
        self._filled = int(state)
