"""Short-run Langevin dynamics: approximate samples of a density known up to a factor."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor


@torch.no_grad()
def langevin(
    score: Callable[[Tensor], Tensor],
    z: Tensor,
    steps: int,
    step_size: float,
    generators: Sequence[torch.Generator] = (),
) -> Tensor:
    """Move points along the gradient of a log-density, with noise.

    Each step is z + s²/2 · score(z) + s · ε with ε ~ N(0, I). Without a correction by acceptance,
    the samples are exact only in the limit of small s and many steps.

    Parameters
    ----------
    score
        The gradient of the log-density at points of the shape of ``z``.
    z
        (B, ...) where to start.
    steps, step_size
        Number of steps, and s.
    generators
        Sources of the noise of each of the B rows; none for torch's global one.
    """
    for _ in range(steps):
        noise = draw_rows(z, generators) if generators else torch.randn_like(z)
        z = z + 0.5 * step_size**2 * score(z) + step_size * noise
    return z


def draw_rows(like: Tensor, generators: Sequence[torch.Generator]) -> Tensor:
    """Draw from N(0, I) in the shape (B, ...) of a tensor, each row from a generator of its own."""
    return torch.stack([torch.randn(like.shape[1:], generator=g) for g in generators]).to(like)
