"""Convolution, statistics and pooling in one pass: see ``block.c``."""

from __future__ import annotations

from functools import cache
from typing import NamedTuple

import torch
from torch import Tensor

from psco.ops.native.build import call, columns, floats, library, scratch


class Map(NamedTuple):
    """A convolution's map y: pooled, its statistics, and on demand what going back needs."""

    pooled: Tensor  # (N, D, H/2, W/2)
    mean: Tensor  # (D,)
    variance: Tensor  # (D,), biased
    y: Tensor | None  # (N, D, H, W)
    winners: Tensor | None = None  # (N, D, H/2, W/2), of torch's pooling


class MapGradient(NamedTuple):
    """The gradient of a map y: that of the pooled map where y has won, plus slope · y + offset."""

    pooled: Tensor  # (N, D, H/2, W/2)
    slope: Tensor  # (D,)
    offset: Tensor  # (D,)


def suits_conv_pool(x: Tensor, weight: Tensor) -> bool:
    """Say whether `conv_pool` takes these images (N, C, H, W) and filters (D, C, 3, 3)."""
    single = x.dtype == weight.dtype == torch.float32 and x.device.type == "cpu"
    if not single or library() is None:
        return False
    D, C = weight.shape[:2]
    return C % columns() == D % columns() == 0


def conv_pool(x: Tensor, weight: Tensor, ceil: bool, keep: bool) -> Map:
    """Convolve images with 3 x 3 filters and pool the map 2 x 2.

    Parameters
    ----------
    x
        (N, C, H, W).
    weight
        (D, C, 3, 3), which see one pixel of zeros around the images.
    ceil
        Whether pooling keeps an odd last row and column.
    keep
        Whether the whole map is given too, as `conv_pool_back` needs it.
    """
    x = _by_pixel(x)
    N, C, H, W = x.shape
    D, up = len(weight), int(ceil)
    y = _empty_map(N, D, H, W) if keep else None
    pooled = _empty_map(N, D, (H + up) // 2, (W + up) // 2)
    threads = torch.get_num_threads()
    sums = torch.zeros(threads, 2, D, dtype=torch.float64, device="cpu")
    U = _spread_filters(weight.permute(2, 3, 1, 0))  # (16, C, D)
    maps = (y, pooled, sums, scratch("block_scratch", C, D))
    call("block_forward", x, U, *maps, N, H, W, C, D, up, threads)
    first, second = (sums.sum(dim=0) / (N * H * W)).unbind()
    return Map(pooled, first.float(), (second - first.square()).clamp_(min=0).float(), y)


def conv_pool_back(
    x: Tensor, weight: Tensor, found: Map, gradient: MapGradient, ceil: bool, need_input: bool
) -> tuple[Tensor | None, Tensor]:
    """Give the gradients of images and filters.

    Parameters
    ----------
    x, weight, ceil
        As of `conv_pool`.
    found
        What it gave, with the whole map y.
    gradient
        Of the map.
    need_input
        Whether the gradient of the images is wanted.

    Returns
    -------
    tuple
        (N, C, H, W) or None, and (D, C, 3, 3).
    """
    x = _by_pixel(x)
    N, C, H, W = x.shape
    D, threads = len(weight), torch.get_num_threads()
    d_x = _empty_map(N, C, H, W) if need_input else None
    d_U = floats(threads, 16, C, D).zero_()
    U = _spread_filters(weight.permute(2, 3, 0, 1))  # (16, D, C)
    of_map = (_by_pixel(gradient.pooled), gradient.slope, gradient.offset)
    wanted = (d_x, d_U, scratch("block_scratch", C, D))
    known = (x, U, found.y, found.pooled, *of_map)
    call("block_backward", *known, *wanted, N, H, W, C, D, int(ceil), threads)
    d_weight = _G().T @ d_U.sum(dim=0).view(16, C * D)  # (9, CD)
    return d_x, d_weight.view(3, 3, C, D).permute(3, 2, 0, 1)


def _spread_filters(filters: Tensor) -> Tensor:
    """Give G g Gᵀ, (16, a, b), of filters g (3, 3, a, b)."""
    return (_G() @ filters.reshape(9, -1)).view(16, *filters.shape[2:])


@cache
def _G() -> Tensor:  # noqa: N802, the paper's letter
    """Give G ⊗ G, (16, 9), of Winograd's F(2 x 2, 3 x 3)."""
    rows = [[1, 0, 0], [0.5, 0.5, 0.5], [0.5, -0.5, 0.5], [0, 0, 1]]
    G = torch.tensor(rows, dtype=torch.float32, device="cpu")
    return torch.kron(G, G)


def _by_pixel(x: Tensor) -> Tensor:
    return x.contiguous(memory_format=torch.channels_last)


def _empty_map(*shape: int) -> Tensor:
    N, C, H, W = shape
    return floats(N, H, W, C).permute(0, 3, 1, 2)
