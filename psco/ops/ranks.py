"""The ranks of a run: processes that train one network together, each on a part of the batch.

Rank r of W holds rows r n, ..., (r + 1) n − 1 of a batch of W n images, in the order in which a
single process would hold all of them. With one rank, everything here does nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from psco.errors import InputError


def world_size() -> int:
    """Return the number W of ranks; 1 if this process trains alone."""
    return dist.get_world_size() if dist.is_available() and dist.is_initialized() else 1


def rank() -> int:
    """Return the number of this rank, from 0. Rank 0 writes the files."""
    return dist.get_rank() if world_size() > 1 else 0


def own_rows(count: int) -> slice:
    """Return which rows of the whole batch this rank holds if every rank has ``count``."""
    first = rank() * count
    return slice(first, first + count)


def gather(x: Tensor) -> Tensor:
    """Concatenate the rows of all ranks in their order: (n, ...) to (W n, ...).

    Differentiable: every rank receives the gradients of its rows, summed over all ranks. If the
    losses of the ranks are averaged, as their gradients are in training, that is the gradient of
    the mean.
    """
    if world_size() == 1:
        return x
    gathered: Tensor = _Gather.apply(x)  # type: ignore[no-untyped-call]
    return gathered


class _Gather(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        ctx.count = len(x)
        x = x.contiguous()
        parts = [torch.empty_like(x) for _ in range(world_size())]
        dist.all_gather(parts, x)
        return torch.cat(parts)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Tensor:
        return all_sum(gradients[0])[own_rows(ctx.count)]


def rows_of_others(x: Tensor) -> Tensor:
    """Return the rows ((W − 1) n, ...) of all other ranks, given those of this one (n, ...)."""
    rows, everyone = own_rows(len(x)), gather(x)
    return torch.cat([everyone[: rows.start], everyone[rows.stop :]])


def unchanged(x: Tensor) -> Tensor:
    """Return x: what `gather`, `all_sum` and `all_max` do within one process."""
    return x


def all_sum(x: Tensor) -> Tensor:
    """Sum over the ranks, element by element, without gradient."""
    return _reduce(x, dist.ReduceOp.SUM) if world_size() > 1 else x


def all_max(x: Tensor) -> Tensor:
    """Return the maximum over the ranks, element by element, without gradient."""
    return _reduce(x, dist.ReduceOp.MAX) if world_size() > 1 else x


def _reduce(x: Tensor, operation: Any) -> Tensor:
    reduced = x.detach().clone(memory_format=torch.contiguous_format)
    dist.all_reduce(reduced, operation)
    return reduced


def any_rank(flag: bool) -> bool:
    """Whether the flag is set on any rank; all ranks get the same answer.

    The flags travel between hosts, not devices: no rank waits for work on its device. A rank whose
    peer has died finds out here.
    """
    return bool(all_max(torch.tensor(flag, dtype=torch.uint8))) if world_size() > 1 else flag


def broadcast(value: float) -> float:
    """Return the value that rank 0 has, such as the reading of its clock, on all ranks."""
    if world_size() == 1:
        return value
    shared = torch.tensor(value, dtype=torch.float64)
    dist.broadcast(shared, 0)
    return float(shared)


def averaged(values: Mapping[str, float]) -> dict[str, float]:
    """Average numbers over the ranks, name by name."""
    if world_size() == 1:
        return dict(values)
    means = all_sum(torch.tensor(list(values.values()), dtype=torch.float64)) / world_size()
    return dict(zip(values, means.tolist(), strict=True))


class SyncBatchNorm(_BatchNorm):
    """BatchNorm over the rows of all ranks, on any device, if every rank has equally many.

    Parameters, buffers and names are those of the layer it replaces, see `synchronise`.
    """

    def forward(self, x: Tensor) -> Tensor:
        """Normalise (n, C, ...) with the mean and variance of each channel over all ranks."""
        if not (self.training or self.running_mean is None):
            return super().forward(x)
        y, mean, var = _SyncNorm.apply(  # type: ignore[no-untyped-call]
            x, self.weight, self.bias, self.eps
        )
        if self.training and self.track_running_stats:
            self._count(mean, var, world_size() * x.numel() // x.shape[1])
        normal: Tensor = y
        return normal

    @torch.no_grad()
    def _count(self, mean: Tensor, var: Tensor, count: int) -> None:
        assert self.num_batches_tracked is not None
        assert self.running_mean is not None
        assert self.running_var is not None
        self.num_batches_tracked += 1
        factor = 1 / float(self.num_batches_tracked) if self.momentum is None else self.momentum
        unbiased = var * (count / max(count - 1, 1))
        self.running_mean.mul_(1 - factor).add_(mean.to(self.running_mean), alpha=factor)
        self.running_var.mul_(1 - factor).add_(unbiased.to(self.running_var), alpha=factor)

    def _check_input_dim(self, x: Tensor) -> None:
        """Accept any number of axes; the replaced layer was made for its input."""


class _SyncNorm(torch.autograd.Function):
    """y = (x − μ) / σ · weight + bias, with μ and σ² over all ranks; returns y, μ and σ²."""

    @staticmethod
    def forward(
        ctx: Any, x: Tensor, weight: Tensor | None, bias: Tensor | None, eps: float
    ) -> tuple[Tensor, Tensor, Tensor]:
        axes = [0, *range(2, x.ndim)]
        wide = x if x.dtype == torch.float64 else x.float()
        own_var, own_mean = torch.var_mean(wide, axes, correction=0)  # (C,)
        # With equally many rows per rank, the variance is the mean variance within ranks plus the
        # variance between them; the latter is a difference of sums, hence double precision.
        own = torch.stack([own_mean, own_mean.double().square(), own_var])  # (3, C)
        centre, square, within = all_sum(own) / world_size()
        mean = centre.to(wide.dtype)
        var = (within + (square - centre.square()).clamp_(min=0)).to(wide.dtype)
        ctx.save_for_backward(x, weight, mean, (var + eps).rsqrt())
        ctx.mark_non_differentiable(mean, var)
        y = F.batch_norm(wide, mean, var, weight, bias, training=False, eps=eps)
        return y.to(x.dtype), mean, var

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        x, weight, mean, scale = ctx.saved_tensors
        axes = [0, *range(2, x.ndim)]
        shape = [1, -1] + [1] * (x.ndim - 2)
        dy = gradients[0].to(mean.dtype)
        normal = (x - mean.view(shape)) * scale.view(shape)
        sums = torch.stack([dy.sum(axes), (dy * normal).sum(axes)])  # (2, C), over this rank's rows
        shift, slope = all_sum(sums) * (x.shape[1] / (world_size() * x.numel()))
        if weight is not None:
            scale = scale * weight
        dx = (dy - shift.view(shape)).addcmul_(normal, slope.view(shape), value=-1)
        dx *= scale.view(shape)
        own = (None, None) if weight is None else (sums[1].to(weight), sums[0].to(weight))
        return dx.to(x.dtype), *own, None


def synchronise(network: nn.Module) -> None:
    """Turn every BatchNorm of a network into a `SyncBatchNorm`, in place.

    The layers stay the same objects with the same tensors; only their forward pass changes.

    Raises
    ------
    InputError
        If a layer is a subclass of BatchNorm, which may compute something else.
    """
    plain = (nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d)
    for name, layer in network.named_modules():
        if type(layer) in plain:
            layer.__class__ = SyncBatchNorm
        elif isinstance(layer, _BatchNorm) and not isinstance(layer, SyncBatchNorm):
            raise InputError(
                f"layer {name!r} is a {type(layer).__name__}, which cannot be synchronised over "
                f"ranks: train on one device, or with another backbone"
            )
