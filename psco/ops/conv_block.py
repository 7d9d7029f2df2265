"""A block of convolution, BatchNorm, ReLU and max pooling that seldom touches its large map.

The map between convolution and pooling is four times larger than what comes before or after it, and
on a CPU moving it costs more than computing it. Two facts avoid most of that, both exact:

- Normalisation with a positive scale and ReLU never change which of two numbers is larger, so
  pooling may come first: what is normalised is a quarter of the map. Where the scale of a channel
  is negative, pooling -y and normalising with the opposite scale is the same.
- The gradient of the map is g at the places that won the pooling, plus a multiple of the map, plus
  a constant: the two last terms are what the statistics pass back.

The first block of a network, whose map is the largest, does without it altogether:
``psco.ops.first_block``.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from psco.ops.first_block import first_block, map_gradient, supports_first_block
from psco.ops.fusion import are_alike, are_plain, has_statistics, trains_plainly, update_statistics
from psco.ops.native import Map, MapGradient, conv_pool, conv_pool_back, supports_conv_pool

_convolve_back = torch.ops.aten.convolution_backward
_pool_back = torch.ops.aten.max_pool2d_with_indices_backward


def can_fuse(x: Tensor, conv: Any, norm: Any, relu: Any, pool: Any) -> bool:
    """Whether `conv_block` computes exactly what these four layers do.

    It takes the layers of the package's own networks with the statistics of the batch, on a CPU, in
    one precision, outside of function transforms. Layers that were edited run as they are.
    """
    return (
        are_plain((conv, norm, relu, pool), (nn.Conv2d, nn.BatchNorm2d, nn.ReLU, nn.MaxPool2d))
        and trains_plainly(x)
        and x.ndim == 4
        and x.shape[2] >= 2
        and x.shape[3] >= 2
        and len(x) > 0
        and _is_conv(conv, x)
        and has_statistics(norm, len(conv.weight), x)
        and _is_pool(pool)
    )


def _is_conv(conv: nn.Conv2d, x: Tensor) -> bool:
    return (
        conv.bias is None
        and conv.weight.shape == (len(conv.weight), x.shape[1], 3, 3)
        and are_alike(conv.weight, x)
        and conv.stride == conv.padding == conv.dilation == (1, 1)
        and conv.groups == 1
        and conv.padding_mode == "zeros"
    )


def _is_pool(pool: nn.MaxPool2d) -> bool:
    return (
        all(side in (2, (2, 2)) for side in (pool.kernel_size, pool.stride))
        and pool.padding in (0, (0, 0))
        and pool.dilation in (1, (1, 1))
        and not pool.return_indices
    )


def conv_block(x: Tensor, conv: nn.Conv2d, norm: nn.BatchNorm2d, pool: nn.MaxPool2d) -> Tensor:
    """Return pool(relu(norm(conv(x)))) in training mode, running statistics included.

    Parameters
    ----------
    x
        (N, C, H, W).
    conv
        3 x 3, stride 1, one pixel of padding, without bias.
    norm, pool
        BatchNorm with scale and shift; 2 x 2 max pooling.

    Returns
    -------
    Tensor
        (N, width, H/2, W/2), the halves rounded as ``pool`` says.
    """
    out: Tensor
    if supports_first_block(x):
        out, mean, variance = first_block(x, conv.weight, norm.weight, norm.bias, norm.eps)
    else:
        # Channels of negative scale are turned over: they pool and normalise the negative map.
        sign = torch.where(norm.weight.detach() < 0, -1.0, 1.0).to(x.dtype)  # (width,)
        weight = conv.weight * sign[:, None, None, None]
        out, mean, variance = _ConvBlock.apply(  # type: ignore[no-untyped-call]
            x, weight, norm.weight * sign, norm.bias, norm.eps, bool(pool.ceil_mode)
        )
        mean = mean * sign
    update_statistics(norm, mean, variance, x[:, 0].numel())
    return out


class _ConvBlock(torch.autograd.Function):
    """The block, and the statistics of its map: mean and (biased) variance of each channel."""

    @staticmethod
    def forward(
        ctx: Any, x: Tensor, weight: Tensor, scale: Tensor, shift: Tensor, eps: float, ceil: bool
    ) -> tuple[Tensor, Tensor, Tensor]:
        needed = any(ctx.needs_input_grad)
        way = conv_pool if supports_conv_pool(x, weight) else _plain_conv_pool
        found = way(x, weight, ceil, needed)
        mean, rate = found.mean, (found.variance + eps).rsqrt()  # (C,), (C,)
        factor = scale * rate
        out = torch.addcmul(_wide(shift - mean * factor), found.pooled, _wide(factor)).relu_()
        if needed:
            ctx.ceil = ceil
            ctx.save_for_backward(x, weight, scale, rate, out, *found)
        ctx.mark_non_differentiable(mean, found.variance)
        return out, mean, found.variance

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor, *_: Tensor) -> tuple[Tensor | None, ...]:
        x, weight, scale, rate, out, *saved = ctx.saved_tensors
        found = Map(*saved)
        g = torch.ops.aten.threshold_backward(gradient, out, 0)  # (N, C, H/2, W/2)
        d_shift = g.sum(dim=(0, 2, 3))  # (C,)
        d_scale = rate * ((g * found.pooled).sum(dim=(0, 2, 3)) - found.mean * d_shift)  # (C,)
        n = x[:, 0].numel()
        factor, slope, offset = map_gradient(scale, rate, found.mean, d_scale, d_shift, n)
        of_map = MapGradient(g.mul_(_wide(factor)), slope, offset)
        back = conv_pool_back if found.winners is None else _plain_conv_pool_back
        d_x, d_weight = back(x, weight, found, of_map, ctx.ceil, ctx.needs_input_grad[0])
        return d_x, d_weight, d_scale, d_shift, None, None


def _plain_conv_pool(x: Tensor, weight: Tensor, ceil: bool, keep: bool) -> Map:
    """Return what `conv_pool` does, by torch's own operations."""
    y = F.conv2d(x, weight, padding=1)  # (N, C, H, W)
    mean, variance = torch.ops.aten.batch_norm_update_stats(y, None, None, 0.0)
    if not keep:
        return Map(F.max_pool2d(y, 2, ceil_mode=ceil), mean, variance, None)
    pooled, winners = F.max_pool2d(y, 2, ceil_mode=ceil, return_indices=True)
    return Map(pooled, mean, variance, y, winners)


def _plain_conv_pool_back(
    x: Tensor, weight: Tensor, found: Map, gradient: MapGradient, ceil: bool, need_input: bool
) -> tuple[Tensor | None, Tensor]:
    """Return what `conv_pool_back` does, by torch's own operations."""
    two, one, zero = [2, 2], [1, 1], [0, 0]
    d_y = _pool_back(gradient.pooled, found.y, two, two, zero, one, ceil, found.winners)
    d_y.addcmul_(found.y, _wide(gradient.slope)).add_(_wide(gradient.offset))
    wanted = [need_input, True, False]
    d_x, d_weight, _ = _convolve_back(d_y, x, weight, None, one, one, one, False, zero, 1, wanted)
    return d_x, d_weight


def _wide(values: Tensor) -> Tensor:  # (C,) -> (1, C, 1, 1)
    return values[None, :, None, None]
