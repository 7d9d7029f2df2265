"""When layers can be computed as one operation, and their running statistics.

Only exactly the fused function may be fused: layers that were edited, hooked, subclassed, traced or
moved to another device run as they are.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules import module as every_module

_GLOBAL_HOOKS: tuple[Mapping[int, object], ...] = (  # of all modules, by number
    every_module._global_forward_hooks,
    every_module._global_forward_pre_hooks,
    every_module._global_backward_hooks,
    every_module._global_backward_pre_hooks,
)


def are_plain(layers: Sequence[nn.Module], types: Sequence[type[nn.Module]]) -> bool:
    """Whether layers are of exactly these types and nothing watches or replaces their calls."""
    return tuple(map(type, layers)) == tuple(types) and not (
        any(map(_is_hooked, layers)) or any(_GLOBAL_HOOKS)
    )


def has_statistics(norm: Any, width: int, x: Tensor) -> bool:
    """Whether a BatchNorm layer normalises ``width`` channels by the batch and keeps averages."""
    vectors = (norm.weight, norm.bias, norm.running_mean, norm.running_var)
    return (
        norm.training
        and norm.track_running_stats
        and norm.num_batches_tracked is not None
        and isinstance(norm.momentum, (int, float))
        and isinstance(norm.eps, (int, float))
        and norm.eps > 0
        and all(isinstance(v, Tensor) and v.shape == (width,) and are_alike(v, x) for v in vectors)
    )


def trains_plainly(x: Any) -> bool:
    """Whether x is on the CPU, outside of mixed precision, function transforms and tracing."""
    return (
        type(x) in (Tensor, nn.Parameter)  # subclasses may compute something else
        and x.device.type == "cpu"
        and x.dtype in (torch.float32, torch.float64)
        and x.layout == torch.strided
        and not torch.is_autocast_enabled("cpu")
        and not torch._C._functorch.maybe_current_level()
        and torch._C._get_tracing_state() is None
        and not torch.compiler.is_compiling()
    )


def _is_hooked(layer: nn.Module) -> bool:
    return bool(
        layer._forward_hooks
        or layer._forward_pre_hooks
        or layer._backward_hooks
        or layer._backward_pre_hooks
        or "forward" in vars(layer)
    )


def are_alike(a: Tensor, b: Tensor) -> bool:
    """Whether two tensors have the same number format, device and layout."""
    return a.dtype == b.dtype and a.device == b.device and a.layout == b.layout


@torch.no_grad()
def update_statistics(
    norm: nn.BatchNorm1d | nn.BatchNorm2d, mean: Tensor, variance: Tensor, count: int
) -> None:
    """Move running statistics towards those of a batch with ``count`` numbers per channel."""
    running_mean, running_variance = norm.running_mean, norm.running_var
    batches, momentum = norm.num_batches_tracked, norm.momentum
    assert running_mean is not None
    assert running_variance is not None
    assert batches is not None
    assert momentum is not None
    batches.add_(1)
    running_mean.lerp_(mean, momentum)
    running_variance.lerp_(variance * (count / (count - 1)), momentum)
