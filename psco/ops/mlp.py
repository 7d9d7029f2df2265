"""Linear layer, BatchNorm, ReLU and linear layer as one operation in training.

The plain form is the four layers themselves; the fast form is the native kernel, which keeps a few
hidden units in the cache through all four.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from psco.ops.fusion import are_plain, has_statistics, trains_plainly, update_statistics
from psco.ops.native import Hidden, mlp, mlp_back, supports_mlp


def can_fuse_mlp(x: Tensor, layers: Sequence[nn.Module]) -> bool:
    """Whether `fused_mlp` computes exactly what these layers do to x (N, width)."""
    if not are_plain(layers, (nn.Linear, nn.BatchNorm1d, nn.ReLU, nn.Linear)):
        return False
    first: Any
    second: Any
    first, norm, _, second = layers
    return (
        first.bias is second.bias is None
        and has_statistics(norm, len(first.weight), x)
        and trains_plainly(x)
        and supports_mlp(x, first.weight, second.weight)
    )


def fused_mlp(x: Tensor, first: Any, norm: Any, _: nn.Module, second: Any) -> Tensor:
    """Return second(relu(norm(first(x)))) in training mode, running statistics included."""
    out: Tensor
    out, mean, variance = _Mlp.apply(  # type: ignore[no-untyped-call]
        x, first.weight, norm.weight, norm.bias, second.weight, norm.eps
    )
    update_statistics(norm, mean, variance, len(x))
    return out


class _Mlp(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, x: Tensor, first: Tensor, scale: Tensor, shift: Tensor, second: Tensor, eps: float
    ) -> tuple[Tensor, Tensor, Tensor]:
        out, hidden = mlp(x, first, scale, shift, second, eps)
        ctx.eps = eps
        if any(ctx.needs_input_grad):
            ctx.save_for_backward(x, first, scale, shift, second, *hidden)
        ctx.mark_non_differentiable(hidden.mean, hidden.variance)
        return out, hidden.mean, hidden.variance

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor, *_: Tensor) -> tuple[Tensor | None, ...]:
        x, first, scale, shift, second, *hidden = ctx.saved_tensors
        layers = (x, first, scale, shift, second, ctx.eps)
        need_input = ctx.needs_input_grad[0]
        return *mlp_back(*layers, Hidden(*hidden), gradient, need_input), None
