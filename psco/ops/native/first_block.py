"""The first block with its windows in registers: see ``first_block.c``."""

from __future__ import annotations

import torch
from torch import Tensor

from psco.ops.native.build import call, columns, floats, library, scratch


def suits_windows(x: Tensor, weight: Tensor) -> bool:
    """Say whether the functions here take these images (N, c, H, W) and filters (C, c, 3, 3)."""
    single = x.dtype == weight.dtype == torch.float32 and x.device.type == "cpu"
    return single and library() is not None and len(weight) % columns() == 0


def window_moments(x: Tensor) -> Tensor:
    """Add up the products of the 3 x 3 patches p of zero-padded images, each with a 1 behind it.

    Parameters
    ----------
    x
        (N, c, H, W), contiguous.

    Returns
    -------
    Tensor
        Σ p pᵀ, (9c + 1, 9c + 1) float64, over all places of all images.
    """
    N, c, H, W = x.shape
    threads, size = torch.get_num_threads(), 9 * c + 1
    moments = torch.zeros(threads, size, size, dtype=torch.float64, device="cpu")
    call(
        "first_block_moments",
        x,
        moments,
        scratch("first_block_scratch", c, H, W),
        N,
        c,
        H,
        W,
        threads,
    )
    lower = moments.sum(dim=0)
    lower[-1, -1] = N * H * W
    return lower + lower.tril(-1).T


def pooled_windows(x: Tensor, of_rows: Tensor) -> Tensor:
    """Give the normalised map, pooled and without its negative numbers: (N, HW/4, C).

    Parameters
    ----------
    x
        (N, c, H, W), contiguous, of even sides.
    of_rows
        (9c + 1, C) filters and, in the last row, what is added to a channel.
    """
    N, c, H, W = x.shape
    D, threads = of_rows.shape[1], torch.get_num_threads()
    out = floats(N, H * W // 4, D)
    call(
        "first_block_forward",
        x,
        of_rows,
        out,
        scratch("first_block_scratch", c, H, W),
        N,
        c,
        H,
        W,
        D,
        threads,
    )
    return out


def won_windows(x: Tensor, of_rows: Tensor, out: Tensor, gradient: Tensor) -> Tensor:
    """Give Σ g p, (9c + 1, C), over the places that have won the pooling.

    Parameters
    ----------
    x, of_rows
        As of `pooled_windows`.
    out, gradient
        (N, HW/4, C), what it gave and its gradient.
    """
    N, c, H, W = x.shape
    D, threads = of_rows.shape[1], torch.get_num_threads()
    won = floats(threads, *of_rows.shape).zero_()
    maps = (out, gradient.contiguous(), won, scratch("first_block_scratch", c, H, W))
    call("first_block_backward", x, of_rows, *maps, N, c, H, W, D, threads)
    return won.sum(dim=0)
