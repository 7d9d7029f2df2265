"""Self-attention over the items of a set (Lee et al., Set Transformer, ICML 2019)."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from psco.errors import InputError


class SetAttention(nn.Module):
    """One block: every item reads all items of its set; the order of the items has no meaning.

    As in the code of Meta-GMVAE, the products are divided by the root of the whole width, not of a
    head's, and there is no normalisation.

    Parameters
    ----------
    width
        Features of an item; a multiple of ``heads``.
    heads
        Attention heads.
    """

    def __init__(self, width: int, heads: int = 4) -> None:
        super().__init__()
        if heads < 1 or width % heads:
            raise InputError(f"heads must divide the width {width} of the features, got {heads}")
        self.to_query, self.to_key, self.to_value = (nn.Linear(width, width) for _ in range(3))
        self.out = nn.Linear(width, width)
        self.heads = heads

    def forward(self, x: Tensor) -> Tensor:
        """Map the items (B, n, width) of B sets to (B, n, width)."""
        q = self.to_query(x)
        k, v = self._split(self.to_key(x)), self._split(self.to_value(x))  # (B, heads, n, w)
        read = F.scaled_dot_product_attention(self._split(q), k, v, scale=x.shape[2] ** -0.5)
        y: Tensor = q + read.transpose(1, 2).flatten(2)
        return y + torch.relu(self.out(y))

    def _split(self, x: Tensor) -> Tensor:  # (B, n, width) -> (B, heads, n, width / heads)
        return x.view(*x.shape[:2], self.heads, -1).transpose(1, 2)


class SetPosterior(nn.Module):
    """q(z | x, set): the Gaussian of each item, given all items of its set.

    Parameters
    ----------
    width
        Features of an item.
    latent
        Length d of a latent.
    blocks, heads
        Attention blocks, and heads of each.
    """

    def __init__(self, width: int, latent: int, blocks: int = 2, heads: int = 4) -> None:
        super().__init__()
        self.blocks = nn.Sequential(*(SetAttention(width, heads) for _ in range(blocks)))
        self.last = nn.Linear(width, 2 * latent)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Return mean and log-variance, 2 x (B, n, d), for features (B, n, width)."""
        mean, log_variance = self.last(self.blocks(x)).chunk(2, dim=2)
        return mean, log_variance
