"""The first block with its windows in registers: see ``first_block.c``."""

from __future__ import annotations

import torch
from torch import Tensor

from psco.ops.native.build import call, columns, floats, library, scratch
from psco.ops.native.check import expect, require, single, whole


def supports_windows(x: Tensor, weight: Tensor) -> bool:
    """Whether the functions here take these images (N, c, H, W) and filters (C, c, 3, 3)."""
    if not single(x, weight) or weight.ndim != 4 or library() is None:
        return False
    C = len(weight)
    return _are_images(x) and whole(C, columns()) and weight.shape == (C, x.shape[1], 3, 3)


def window_moments(x: Tensor) -> Tensor:
    """Add up the products of the 3 x 3 patches p of zero-padded images, each with a 1 behind it.

    Parameters
    ----------
    x
        (N, c, H, W) of even sides.

    Returns
    -------
    Tensor
        Σ p pᵀ, (9c + 1, 9c + 1) float64, over all places of all images.

    Raises
    ------
    InputError
        If the images are not as above.
    """
    x = _images("window_moments", x)
    N, c, H, W = x.shape
    threads, size = torch.get_num_threads(), 9 * c + 1
    moments = torch.zeros(threads, size, size, dtype=torch.float64, device="cpu")
    memory = scratch(threads, "first_block_scratch", c, H, W)
    call("first_block_moments", x, moments, memory, N, c, H, W, threads)
    lower = moments.sum(dim=0)
    lower[-1, -1] = N * H * W
    return lower + lower.tril(-1).T


def pooled_windows(x: Tensor, of_rows: Tensor) -> Tensor:
    """Return the normalised map after ReLU and pooling: (N, HW/4, C).

    Parameters
    ----------
    x
        (N, c, H, W) of even sides.
    of_rows
        (9c + 1, C) filters and, in the last row, what is added to a channel.

    Raises
    ------
    InputError
        If a shape or a number format is not as above.
    """
    x, of_rows = _images("pooled_windows", x), _filters("pooled_windows", x, of_rows)
    N, c, H, W = x.shape
    D, threads = of_rows.shape[1], torch.get_num_threads()
    out, memory = floats(N, H * W // 4, D), scratch(threads, "first_block_scratch", c, H, W)
    call("first_block_forward", x, of_rows, out, memory, N, c, H, W, D, threads)
    return out


def won_windows(x: Tensor, of_rows: Tensor, out: Tensor, gradient: Tensor) -> Tensor:
    """Return Σ g p, (9c + 1, C), over the places that have won the pooling.

    Parameters
    ----------
    x, of_rows
        As of `pooled_windows`.
    out, gradient
        (N, HW/4, C), what it returned and the upstream gradient.

    Raises
    ------
    InputError
        If a shape or a number format is not as above.
    """
    x, of_rows = _images("won_windows", x), _filters("won_windows", x, of_rows)
    N, c, H, W = x.shape
    D, threads = of_rows.shape[1], torch.get_num_threads()
    small = (N, H * W // 4, D)
    maps = (expect("out", out, small), expect("the gradient", gradient, small))
    won = floats(threads, *of_rows.shape).zero_()
    memory = scratch(threads, "first_block_scratch", c, H, W)
    call("first_block_backward", x, of_rows, *maps, won, memory, N, c, H, W, D, threads)
    return won.sum(dim=0)


def _are_images(x: Tensor) -> bool:
    if x.ndim != 4:
        return False
    N, c, H, W = x.shape
    return whole(N) and whole(c) and whole(H, 2) and whole(W, 2)


def _images(name: str, x: Tensor) -> Tensor:
    known = single(x) and _are_images(x)
    require(known, name, "float32 images (N, c, H, W) of even sides on cpu", x)
    return expect("x", x, tuple(x.shape))


def _filters(name: str, x: Tensor, of_rows: Tensor) -> Tensor:
    known = of_rows.ndim == 2 and whole(of_rows.shape[1], columns())
    require(known, name, f"filters (9c + 1, C), C a multiple of {columns()}", of_rows)
    return expect("of_rows", of_rows, (9 * x.shape[1] + 1, of_rows.shape[1]))
