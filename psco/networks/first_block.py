"""The first block of a network, convolution to pooling, with its map in the caches all the time.

What comes into this block are images, which take no gradient, and of few channels; what lies
between its convolution and its pooling is the largest map of the network by far. On a CPU moving
that map costs many times its arithmetic. Two facts keep it from ever being whole, both exact:

- The map is a linear function of the 3 x 3 patches of the images, so the moments of the patches
  give its mean and variance before it is computed. With them BatchNorm is part of the filters, and
  the block can be run for a few images at a time, as products of patches and filters.
- Backward, the statistics pass a multiple of the map and a constant to every place of it. The
  moments know what that adds to the filters; the rest comes from the places that won the pooling.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.autograd.function import once_differentiable

FEW_CHANNELS = 4  # up to which the patches take less memory than the map
_MAP_AT_ONCE = 1 << 19  # numbers of the map: 2 MiB, what a second-level cache holds
_pool = torch.ops.aten.max_pool2d_with_indices
_pool_back = torch.ops.aten.max_pool2d_with_indices_backward


def first_block(
    x: Tensor, weight: Tensor, scale: Tensor, shift: Tensor, eps: float, ceil: bool
) -> tuple[Tensor, Tensor, Tensor]:
    """Run the block, with the statistics of the batch.

    Parameters
    ----------
    x
        (N, c, H, W) images; they get no gradient.
    weight
        (C, c, 3, 3) filters.
    scale, shift, eps
        (C,) of BatchNorm, and its epsilon.
    ceil
        Whether halves of odd sides are rounded up.

    Returns
    -------
    tuple
        (N, C, H/2, W/2), and mean and (biased) variance (C,) of each channel of the map.
    """
    block: tuple[Tensor, Tensor, Tensor] = _FirstBlock.apply(  # type: ignore[no-untyped-call]
        x, weight, scale, shift, eps, ceil
    )
    return block


class _FirstBlock(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, x: Tensor, weight: Tensor, scale: Tensor, shift: Tensor, eps: float, ceil: bool
    ) -> tuple[Tensor, Tensor, Tensor]:
        rows, filters = patches(x), weight.flatten(1)  # (N, 9c, HW), (C, 9c)
        total, products = patch_moments(rows)  # (9c,), (9c, 9c)
        mean, variance = _statistics(filters, total, products, x[:, 0].numel())  # (C,), (C,)
        rate = (variance + eps).rsqrt()  # (C,)
        factor = scale * rate
        # y + bias is the normalised map; what is the same for a channel may be added after pooling.
        of_rows = (filters * factor[:, None]).T  # (9c, C)
        bias = _wide(shift - mean * factor)

        pooling = _Pooling(x, len(weight), ceil)
        out = pooling.empty_half(len(x), x.dtype)  # (N, C, H/2, W/2)
        training = any(ctx.needs_input_grad)
        winners = pooling.empty_half(len(x), torch.int64) if training else None
        for part in pooling.parts:
            y = torch.bmm(rows[part].mT, of_rows.expand(len(rows[part]), -1, -1))  # (n, HW, C)
            if winners is None:
                pooling.largest(y, out[part])
            else:
                pooling.winners(y, out[part], winners[part])
            out[part].add_(bias).relu_()
        if winners is not None:
            ctx.pooling = pooling
            ctx.save_for_backward(rows, filters, scale, mean, rate, out, winners, total, products)
        ctx.mark_non_differentiable(mean, variance)
        return out, mean, variance

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor, *_: Tensor) -> tuple[Tensor | None, ...]:
        rows, filters, scale, mean, rate, out, winners, total, products = ctx.saved_tensors
        d_shift, won = torch.zeros_like(scale), torch.zeros_like(filters)  # (C,), (C, 9c)
        for part in ctx.pooling.parts:
            g = torch.ops.aten.threshold_backward(gradient[part], out[part], 0)
            d_shift += g.sum(dim=(0, 2, 3))
            spread = ctx.pooling.back(g, winners[part])  # (n, HW, C)
            won += torch.bmm(rows[part], spread).sum(dim=0).T  # Σ g p
        d_scale = rate * ((won * filters).sum(dim=1) - mean * d_shift)  # (C,)
        n = rows[:, 0].numel()
        factor, slope, offset = map_gradient(scale, rate, mean, d_scale, d_shift, n)
        of_map = filters.double() @ products  # Σ y p, (C, 9c)
        of_rest = slope[:, None] * of_map + offset[:, None] * total
        d_filters = won * factor[:, None] + of_rest.to(won.dtype)
        return None, d_filters.view(len(filters), -1, 3, 3), d_scale, d_shift, None, None


class _Pooling:
    """2 x 2 max pooling of maps (n, HW, C), a few images at a time.

    Parameters
    ----------
    x
        (N, c, H, W) images that the maps are of.
    channels
        C.
    ceil
        Whether halves of odd sides are rounded up.
    """

    def __init__(self, x: Tensor, channels: int, ceil: bool) -> None:
        self.sides, self.channels, self.ceil = x.shape[2:], channels, ceil
        size = max(1, _MAP_AT_ONCE // (channels * x[0, 0].numel()))
        self.parts = [slice(begin, begin + size) for begin in range(0, len(x), size)]
        # Kernel, stride, padding, dilation and rounding of the torch function.
        self._settings = [2, 2], [2, 2], [0, 0], [1, 1], ceil

    def empty_half(self, images: int, dtype: torch.dtype) -> Tensor:
        """Give memory for (images, C, H/2, W/2)."""
        sides = [(side + self.ceil) // 2 for side in self.sides]
        shape = (images, self.channels, *sides)
        return torch.empty(shape, dtype=dtype, memory_format=torch.channels_last)

    def winners(self, y: Tensor, out: Tensor, indices: Tensor) -> None:
        """Pool a map; say also which place of the map each number is from."""
        _pool.out(self._map(y), *self._settings, out=out, indices=indices)

    def largest(self, y: Tensor, out: Tensor) -> None:
        """Pool a map."""
        H, W = self.sides
        if H % 2 or W % 2:
            out.copy_(F.max_pool2d(self._map(y), 2, ceil_mode=self.ceil))
            return
        # The torch function finds the indices in any case, which takes twice the time.
        upper, lower = y.view(len(y), H // 2, 2, W, -1).unbind(2)  # (n, H/2, W, C)
        left, right = torch.maximum(upper, lower).view(len(y), H // 2, W // 2, 2, -1).unbind(3)
        torch.maximum(left, right, out=out.permute(0, 2, 3, 1))

    def back(self, g: Tensor, indices: Tensor) -> Tensor:
        """Spread (n, C, H/2, W/2) over the places that have won: (n, HW, C)."""
        # Of the map, only the shape is asked for.
        shape = (len(g), self.channels, *self.sides)
        y = torch.empty(shape, dtype=g.dtype, memory_format=torch.channels_last)
        spread: Tensor = _pool_back(g, y, *self._settings, indices)
        return spread.permute(0, 2, 3, 1).flatten(1, 2)

    def _map(self, y: Tensor) -> Tensor:  # (n, HW, C) -> (n, C, H, W), channels last
        return y.view(len(y), *self.sides, -1).permute(0, 3, 1, 2)


def map_gradient(
    scale: Tensor, rate: Tensor, mean: Tensor, d_scale: Tensor, d_shift: Tensor, n: int
) -> tuple[Tensor, Tensor, Tensor]:
    """Give factor, slope and offset (C,): dL/dy = factor · g where y has won + slope · y + offset.

    That is the gradient of BatchNorm in training, for n places of each channel:
    factor · (g where y has won − d_shift / n − d_scale / n · (y − mean) · rate).
    """
    factor = scale * rate
    slope = -factor * d_scale * rate / n
    return factor, slope, -factor * d_shift / n - slope * mean


def patches(x: Tensor) -> Tensor:
    """Give the 3 x 3 patches of zero-padded images (N, C, H, W): (N, 9C, HW), as filters go."""
    H, W = x.shape[2:]
    padded = F.pad(x.contiguous(), (1, 1, 1, 1))
    shifted = [padded[:, :, i : i + H, j : j + W] for i in range(3) for j in range(3)]
    return torch.stack(shifted, dim=2).flatten(1, 2).flatten(2)


def patch_moments(rows: Tensor) -> tuple[Tensor, Tensor]:
    """Add up patches and their products.

    Parameters
    ----------
    rows
        (N, P, HW) patches p of P numbers.

    Returns
    -------
    tuple
        Σ p, (P,), and Σ p pᵀ, (P, P), over all N·HW patches. Images are added up in double
        precision, since statistics are differences of such sums.
    """
    total = rows.sum(dim=2).sum(dim=0, dtype=torch.float64)
    return total, torch.bmm(rows, rows.mT).sum(dim=0, dtype=torch.float64)


def _statistics(
    filters: Tensor, total: Tensor, products: Tensor, count: int
) -> tuple[Tensor, Tensor]:
    """Give mean and variance of w·p for filters w (C, P) and the moments of the patches p."""
    rows, centre = filters.double(), total / count  # (C, P), (P,)
    covariance = products / count - centre[:, None] * centre  # (P, P)
    variance = ((rows @ covariance) * rows).sum(dim=1).clamp_(min=0)
    return (rows @ centre).to(filters.dtype), variance.to(filters.dtype)


def _wide(values: Tensor) -> Tensor:  # (C,) -> (1, C, 1, 1)
    return values[None, :, None, None]
