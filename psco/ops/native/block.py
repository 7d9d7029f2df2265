"""Convolution, statistics and pooling in one pass: see ``block.c``."""

from __future__ import annotations

from functools import cache
from typing import NamedTuple

import torch
from torch import Tensor

from psco.ops.native.build import call, columns, floats, library, scratch
from psco.ops.native.check import expect, require, single, whole


class Map(NamedTuple):
    """A convolution's map y: pooled, its statistics and, if kept, what the backward pass needs."""

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


def supports_conv_pool(x: Tensor, weight: Tensor) -> bool:
    """Whether `conv_pool` takes these images (N, C, H, W) and filters (D, C, 3, 3)."""
    if not single(x, weight) or x.ndim != 4 or weight.ndim != 4 or library() is None:
        return False
    (N, C, H, W), D = x.shape, len(weight)
    sizes = whole(N) and H >= 2 and W >= 2 and whole(C, columns()) and whole(D, columns())
    return sizes and weight.shape == (D, C, 3, 3)


def conv_pool(x: Tensor, weight: Tensor, ceil: bool, keep: bool) -> Map:
    """Convolve images with 3 x 3 filters and pool the map 2 x 2.

    Parameters
    ----------
    x
        (N, C, H, W), at least 2 x 2 pixels.
    weight
        (D, C, 3, 3); the images are padded with one pixel of zeros.
    ceil
        Whether pooling keeps an odd last row and column.
    keep
        Whether the whole map is returned too, for `conv_pool_back`.

    Raises
    ------
    InputError
        If `supports_conv_pool` is false.
    """
    _require("conv_pool", x, weight)
    x = _by_pixel(x)
    N, C, H, W = x.shape
    D, up = len(weight), int(bool(ceil))
    y = _empty_map(N, D, H, W) if keep else None
    pooled = _empty_map(N, D, (H + up) // 2, (W + up) // 2)
    threads = torch.get_num_threads()
    sums = torch.zeros(threads, 2, D, dtype=torch.float64, device="cpu")
    U = _spread_filters(weight.permute(2, 3, 1, 0))  # (16, C, D)
    maps = (y, pooled, sums, scratch(threads, "block_scratch", C, D))
    call("block_forward", x, U, *maps, N, H, W, C, D, up, threads)
    first, second = (sums.sum(dim=0) / (N * H * W)).unbind()
    return Map(pooled, first.float(), (second - first.square()).clamp_(min=0).float(), y)


def conv_pool_back(
    x: Tensor, weight: Tensor, found: Map, gradient: MapGradient, ceil: bool, need_input: bool
) -> tuple[Tensor | None, Tensor]:
    """Return the gradients of images and filters.

    Parameters
    ----------
    x, weight, ceil
        As of `conv_pool`.
    found
        What it returned, with the whole map y.
    gradient
        Of the map.
    need_input
        Whether the gradient of the images is wanted.

    Returns
    -------
    tuple
        (N, C, H, W) or None, and (D, C, 3, 3).

    Raises
    ------
    InputError
        If a shape or a number format is not as above.
    """
    _require("conv_pool_back", x, weight)
    x = _by_pixel(x)
    N, C, H, W = x.shape
    D, up, threads = len(weight), int(bool(ceil)), torch.get_num_threads()
    small = (N, D, (H + up) // 2, (W + up) // 2)
    y = expect("y", found.y, (N, D, H, W), order=torch.channels_last)
    pooled = expect("pooled", found.pooled, small, order=torch.channels_last)
    of_map = (
        expect("the gradient", gradient.pooled, small, order=torch.channels_last),
        expect("slope", gradient.slope, (D,)),
        expect("offset", gradient.offset, (D,)),
    )
    d_x = _empty_map(N, C, H, W) if need_input else None
    d_U = floats(threads, 16, C, D).zero_()
    U = _spread_filters(weight.permute(2, 3, 0, 1))  # (16, D, C)
    wanted = (d_x, d_U, scratch(threads, "block_scratch", C, D))
    call("block_backward", x, U, y, pooled, *of_map, *wanted, N, H, W, C, D, up, threads)
    d_weight = _G().T @ d_U.sum(dim=0).view(16, C * D)  # (9, CD)
    return d_x, d_weight.view(3, 3, C, D).permute(3, 2, 0, 1)


def _require(name: str, x: Tensor, weight: Tensor) -> None:
    allowed = "float32 images (N, C, H, W) and filters (D, C, 3, 3) on cpu, in multiples of a tile"
    require(supports_conv_pool(x, weight), name, allowed, x, weight)


def _spread_filters(filters: Tensor) -> Tensor:
    """Return G g Gᵀ, (16, a, b), of filters g (3, 3, a, b)."""
    return (_G() @ filters.reshape(9, -1)).view(16, *filters.shape[2:])


@cache
def _G() -> Tensor:  # noqa: N802, the paper's letter
    """Return G ⊗ G, (16, 9), of Winograd's F(2 x 2, 3 x 3)."""
    rows = [[1, 0, 0], [0.5, 0.5, 0.5], [0.5, -0.5, 0.5], [0, 0, 1]]
    G = torch.tensor(rows, dtype=torch.float32, device="cpu")
    return torch.kron(G, G)


def _by_pixel(x: Tensor) -> Tensor:
    return x.resolve_neg().contiguous(memory_format=torch.channels_last)


def _empty_map(*shape: int) -> Tensor:
    N, C, H, W = shape
    return floats(N, H, W, C).permute(0, 3, 1, 2)
