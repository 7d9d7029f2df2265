"""The heads g and h on top of a backbone, and how wide the backbone below them is."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from psco.errors import InputError
from psco.ops.conv_block import are_plain, has_statistics, remember, trains_plainly
from psco.ops.native import Hidden, mlp, mlp_back, supports_mlp


class Head(nn.Sequential):
    """A linear layer, BatchNorm, ReLU, a linear layer, and perhaps more.

    In training the first four are one operation where that can be done.
    """

    def forward(self, x: Tensor) -> Tensor:
        """Map (N, width) to (N, out)."""
        layers: list[Any] = list(self)
        if len(layers) >= 4 and _can_fuse(x, *layers[:4]):
            first, norm, _, second = layers[:4]
            x, mean, variance = _Mlp.apply(  # type: ignore[no-untyped-call]
                x, first.weight, norm.weight, norm.bias, second.weight, norm.eps
            )
            remember(norm, mean, variance, len(x))
            layers = layers[4:]
        for layer in layers:
            x = layer(x)
        return x


def _can_fuse(x: Tensor, first: Any, norm: Any, relu: Any, second: Any) -> bool:
    return (
        are_plain((first, norm, relu, second), (nn.Linear, nn.BatchNorm1d, nn.ReLU, nn.Linear))
        and first.bias is second.bias is None
        and has_statistics(norm, len(first.weight), x)
        and trains_plainly(x)
        and supports_mlp(x, first.weight, second.weight)
    )


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


def projector(width: int, hidden: int = 2048, out: int = 128) -> Head:
    """Make the projection head g: a two-layer MLP that ends in BatchNorm without affine map."""
    return Head(*_mlp(width, hidden, out), nn.BatchNorm1d(out, affine=False))


def predictor(width: int, hidden: int = 2048) -> Head:
    """Make the prediction head h: a two-layer MLP from ``width`` back to ``width``."""
    return Head(*_mlp(width, hidden, width))


def _mlp(width: int, hidden: int, out: int) -> list[nn.Module]:
    # BatchNorm follows or the output is normalised: biases would have no effect worth a parameter.
    return [
        nn.Linear(width, hidden, bias=False),
        nn.BatchNorm1d(hidden),
        nn.ReLU(inplace=True),
        nn.Linear(hidden, out, bias=False),
    ]


@torch.no_grad()
def output_width(backbone: nn.Module, channels: int, image_size: int) -> int:
    """Find the number d of features by passing one blank image.

    Raises
    ------
    InputError
        If the backbone does not return (1, d) for an image of this shape.
    """
    mode = backbone.training
    like = next(backbone.parameters(), torch.empty(0))
    blank = torch.zeros(1, channels, image_size, image_size, device=like.device, dtype=like.dtype)
    try:
        features: Tensor = backbone.eval()(blank)
    except (RuntimeError, AssertionError) as error:  # timm asserts the size that a model is for
        raise InputError(
            f"the backbone takes no images of {channels} x {image_size} x {image_size}: {error}"
        ) from None
    finally:
        backbone.train(mode)
    if features.ndim != 2:
        raise InputError(f"a backbone must return (B, d), not {tuple(features.shape)} for B = 1")
    return features.shape[1]
