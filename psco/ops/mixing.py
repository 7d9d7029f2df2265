"""Hard negatives made by mixing: keys near to a query, moved towards it.

Kalantidis et al., Hard Negative Mixing for Contrastive Learning, NeurIPS 2020; Ye, Han and Zhan,
Revisiting Unsupervised Meta-Learning via the Characteristics of Few-Shot Tasks, TPAMI 2022.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from psco.ops.top_k import top_k

MOST = 0.5  # part of the query in a mixed negative, at most


def mix(z: Tensor, negatives: Tensor, part: Tensor) -> Tensor:
    """Return negatives (N, H, d) moved towards z (N, d): (1 − c) n + c z.

    Parameters
    ----------
    z, negatives
        (N, d) and (N, H, d).
    part
        (N, H) c in [0, 1], the part of z.
    """
    return torch.lerp(negatives, z[:, None].expand_as(negatives), part[..., None])


def contrast_with_mixed(
    q: Tensor,
    z: Tensor,
    queue: Tensor,
    temperature: float,
    count: int,
    spared: Tensor | None = None,
    part: Tensor | None = None,
) -> Tensor:
    """Contrast q_n with its own key z_n among z_n, the queue, and negatives mixed for q_n.

    The ``count`` keys nearest to a query are mixed with it and scaled to unit length. A mixed
    negative is a constant: the gradient flows through the query that is compared with it.

    Parameters
    ----------
    q, z
        (N, d) queries and their own keys, of unit length.
    queue
        (M, d) other keys, of unit length.
    temperature
        τ > 0.
    count
        H, mixed negatives of each query, at most M, without spared keys.
    spared
        (N, K) rows of the queue that are no negatives of the query; None for none.
    part
        (N, H) part of the query in each; None draws them from [0, 0.5).

    Returns
    -------
    Tensor
        The mean cross-entropy, a scalar.
    """
    logits = q @ queue.T  # (N, M)
    if spared is not None:
        logits = logits.scatter(1, spared, -torch.inf)
    with torch.no_grad():
        near = queue[top_k(logits, count)]  # (N, H, d)
        if part is None:
            part = MOST * torch.rand(near.shape[:2], device=q.device, dtype=q.dtype)
        mixed = F.normalize(mix(q, near, part), dim=2)  # (N, H, d)
    own = (q * z).sum(dim=1, keepdim=True)  # (N, 1)
    hard = (mixed @ q[:, :, None]).squeeze(2)  # (N, H)
    everything = torch.cat([own, logits, hard], dim=1) / temperature  # (N, 1 + M + H)
    return (everything.logsumexp(dim=1) - own[:, 0] / temperature).mean()
