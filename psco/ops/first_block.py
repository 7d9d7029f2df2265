"""The first block of a network, convolution to pooling, without ever storing its feature map.

The inputs of this block are images: they take no gradient and have few channels. The map between
its convolution and its pooling is by far the largest of the network, and on a CPU moving it costs
many times its arithmetic. Two facts, both exact, avoid storing it:

- The map is a linear function of the 3 x 3 patches of the images, so the moments of the patches
  give its mean and variance before it is computed. With them BatchNorm folds into the filters, and
  the block runs on a few images at a time, as products of patches and filters.
- In the backward pass, the statistics add a multiple of the map and a constant to every gradient.
  The moments tell what that adds to the filters. The rest comes from the positions that won the
  pooling, which are found by computing the map again: that is faster than storing them.

Patches are ordered by their position in a pooling window, all upper left ones first, so pooling
works on four contiguous pieces of memory.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.autograd.function import once_differentiable

from psco.ops.native import pooled_windows, supports_windows, window_moments, won_windows
from psco.ops.script import compile_script

FEW_CHANNELS = 4  # up to which patches take less memory than the map
_MAP_AT_ONCE = 1 << 19  # numbers of the map: 2 MiB, the size of a second-level cache


def supports_first_block(x: Tensor) -> bool:
    """Whether `first_block` takes these images (N, c, H, W) and saves time."""
    few, even = x.shape[1] <= FEW_CHANNELS, x.shape[2] % 2 == x.shape[3] % 2 == 0
    return few and even and not x.requires_grad


def first_block(
    x: Tensor, weight: Tensor, scale: Tensor, shift: Tensor, eps: float
) -> tuple[Tensor, Tensor, Tensor]:
    """Return the output of the block, normalised with the statistics of the batch.

    Parameters
    ----------
    x
        (N, c, H, W) images of even sides; they get no gradient.
    weight
        (C, c, 3, 3) filters.
    scale, shift, eps
        (C,) of BatchNorm, and its epsilon.

    Returns
    -------
    tuple
        (N, C, H/2, W/2), and mean and (biased) variance (C,) of each channel of the map.
    """
    block: tuple[Tensor, Tensor, Tensor] = _FirstBlock.apply(  # type: ignore[no-untyped-call]
        x, weight, scale, shift, eps
    )
    return block


class _FirstBlock(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, x: Tensor, weight: Tensor, scale: Tensor, shift: Tensor, eps: float
    ) -> tuple[Tensor, Tensor, Tensor]:
        N, _, H, W = x.shape
        filters = weight.flatten(1)  # (C, P)
        quick = supports_windows(x, weight)
        rows = x.contiguous() if quick else patches(x)  # the latter (N, P + 1, HW)
        moments = window_moments(rows) if quick else patch_moments(rows)  # (P + 1, P + 1)
        mean, variance = _statistics(filters, moments)  # (C,), (C,)
        rate = (variance + eps).rsqrt()  # (C,)
        factor = scale * rate
        of_rows = torch.cat([(filters * factor[:, None]).T, (shift - mean * factor)[None]])

        if quick:
            out = pooled_windows(rows, of_rows)  # (N, HW/4, C)
        else:
            out = x.new_empty(N, H * W // 4, len(weight))
            _compiled(_pool_maps)(rows, of_rows, out, _images_at_once(out))
        ctx.quick = quick
        ctx.save_for_backward(rows, of_rows, filters, scale, mean, rate, out, moments)
        ctx.mark_non_differentiable(mean, variance)
        return out.view(N, H // 2, W // 2, -1).permute(0, 3, 1, 2), mean, variance

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor, *_: Tensor) -> tuple[Tensor | None, ...]:
        rows, of_rows, filters, scale, mean, rate, out, moments = ctx.saved_tensors
        gradient = gradient.permute(0, 2, 3, 1).reshape(out.shape)  # (N, HW/4, C)
        if ctx.quick:
            won = won_windows(rows, of_rows, out, gradient)  # (P + 1, C)
        else:
            won = _compiled(_won)(rows, of_rows, out, gradient, _images_at_once(out))
        won, d_shift = won[:-1].T, won[-1]  # (C, P), (C,)
        d_scale = rate * ((won * filters).sum(dim=1) - mean * d_shift)  # (C,)
        n = 4 * int(out[..., 0].numel())
        factor, slope, offset = map_gradient(scale, rate, mean, d_scale, d_shift, n)
        of_map = filters.double() @ moments[:-1, :-1]  # Σ y p, (C, P)
        of_rest = slope[:, None] * of_map + offset[:, None] * moments[-1, :-1]
        d_filters = won * factor[:, None] + of_rest.to(won.dtype)
        return None, d_filters.view(len(filters), -1, 3, 3), d_scale, d_shift, None


def _images_at_once(out: Tensor) -> int:
    return max(1, _MAP_AT_ONCE // (4 * out[0].numel()))


@cache
def _compiled(function: Callable[..., Any]) -> Callable[..., Any]:
    return compile_script(function)


def _pool_maps(rows: Tensor, of_rows: Tensor, out: Tensor, size: int) -> None:
    """Compute the normalised map and pool it, a few images at a time in the same memory.

    Parameters
    ----------
    rows
        (N, P + 1, HW) patches.
    of_rows
        (P + 1, C) filters, and in the last row the shift of each channel.
    out
        (N, HW/4, C), written.
    size
        Images at a time.
    """
    memory = torch.empty([size, 2, 2, out.size(1), out.size(2)], dtype=out.dtype)
    for begin in range(0, rows.size(0), size):
        turned, pooled = rows[begin : begin + size].mT, out[begin : begin + size]
        n = pooled.size(0)
        y = memory[:n]  # (n, 2, 2, HW/4, C)
        torch.bmm(turned, of_rows.expand(n, -1, -1), out=y.view(n, -1, y.size(4)))
        left, right = y.unbind(2)  # (n, 2, HW/4, C)
        torch.maximum(left, right, out=left)
        upper, lower = left.unbind(1)  # (n, HW/4, C)
        torch.maximum(upper, lower, out=pooled)
        pooled.relu_()


def _won(rows: Tensor, of_rows: Tensor, out: Tensor, gradient: Tensor, size: int) -> Tensor:
    """Compute the map again and return Σ g p over the positions that won the pooling.

    Of equal positions the first wins. Where a comparison is 1 the gradient goes to one side, and
    the remainder, itself or 0, to the other.

    Parameters
    ----------
    rows, of_rows, size
        As of `_pool_maps`.
    out, gradient
        (N, HW/4, C), output of the forward pass, and g before the ReLU.

    Returns
    -------
    Tensor
        (P + 1, C), with Σ g in the last row.
    """
    won = torch.zeros_like(of_rows)
    memory = torch.empty([size, 2, 2, out.size(1), out.size(2)], dtype=out.dtype)
    spare = torch.empty_like(memory[:, :, 0])
    for begin in range(0, rows.size(0), size):
        patch, pooled = rows[begin : begin + size], out[begin : begin + size]
        n = pooled.size(0)
        g = torch.ops.aten.threshold_backward(gradient[begin : begin + size], pooled, 0)
        y, larger = memory[:n], spare[:n]  # (n, 2, 2, HW/4, C), (n, 2, HW/4, C)
        flat = y.view(n, -1, y.size(4))  # (n, HW, C)
        torch.bmm(patch.mT, of_rows.expand(n, -1, -1), out=flat)
        left, right = y.unbind(2)  # (n, 2, HW/4, C)
        torch.maximum(left, right, out=larger)
        right.gt_(left)
        upper, lower = left.unbind(1)  # (n, HW/4, C)
        torch.gt(larger[:, 1], larger[:, 0], out=lower)
        lower.mul_(g)
        torch.sub(g, lower, out=upper)
        left.sub_(right.mul_(left))
        won += torch.bmm(patch, flat).sum(dim=0)
    return won


def map_gradient(
    scale: Tensor, rate: Tensor, mean: Tensor, d_scale: Tensor, d_shift: Tensor, n: int
) -> tuple[Tensor, Tensor, Tensor]:
    """Return factor, slope and offset (C,): dL/dy = factor · g where y won + slope · y + offset.

    That is the gradient of BatchNorm in training, for n positions of each channel:
    factor · (g where y won − d_shift / n − d_scale / n · (y − mean) · rate).
    """
    factor = scale * rate
    slope = -factor * d_scale * rate / n
    return factor, slope, -factor * d_shift / n - slope * mean


def patches(x: Tensor) -> Tensor:
    """Return the 3 x 3 patches of zero-padded images, each followed by a 1.

    Parameters
    ----------
    x
        (N, c, H, W) of even sides.

    Returns
    -------
    Tensor
        (N, 9c + 1, HW), the 9c numbers in the order of filters; positions ordered by row and column
        in their 2 x 2 window first, then by window.
    """
    N, c, H, W = x.shape
    padded = F.pad(x, (1, 1, 1, 1))
    windows = padded.unfold(2, 4, 2).unfold(3, 4, 2)  # (N, c, H/2, W/2, 4, 4)
    found = windows.unfold(4, 3, 1).unfold(5, 3, 1)  # (N, c, H/2, W/2, 2, 2, 3, 3)
    rows = x.new_empty(N, 9 * c + 1, H * W)
    of_patches = rows[:, :-1].view(N, c, 3, 3, 2, 2, H // 2, W // 2)
    of_patches.copy_(found.permute(0, 1, 6, 7, 4, 5, 2, 3))
    rows[:, -1] = 1
    return rows


def patch_moments(rows: Tensor) -> Tensor:
    """Return the summed products of patches.

    Parameters
    ----------
    rows
        (N, P + 1, HW) patches p of P numbers and a 1.

    Returns
    -------
    Tensor
        Σ p pᵀ, (P + 1, P + 1), over all N·HW patches; the last row has Σ p and their number. Summed
        in double precision, since statistics are differences of such sums.
    """
    return torch.bmm(rows, rows.mT).sum(dim=0, dtype=torch.float64)


def _statistics(filters: Tensor, moments: Tensor) -> tuple[Tensor, Tensor]:
    """Return mean and variance of w·p for filters w (C, P) and the moments of the patches p."""
    means = moments / moments[-1, -1]
    rows, centre = filters.double(), means[-1, :-1]  # (C, P), (P,)
    covariance = means[:-1, :-1] - centre[:, None] * centre  # (P, P)
    variance = ((rows @ covariance) * rows).sum(dim=1).clamp_(min=0)
    return (rows @ centre).to(filters.dtype), variance.to(filters.dtype)
