"""Class centres of a few labelled representations, and distances to them."""

from __future__ import annotations

import torch.nn.functional as F
from torch import Tensor


def prototypes(support: Tensor, labels: Tensor, ways: int) -> Tensor:
    """Return the normalised sum c_y of the supports of every class (Section 3.3).

    Parameters
    ----------
    support
        (..., S, d) support representations z_s; any number of tasks in front.
    labels
        (..., S) int64 classes y_s in 0..ways−1.
    ways
        Number of classes.

    Returns
    -------
    Tensor
        (..., ways, d) of unit length.
    """
    members = F.one_hot(labels, ways).to(support.dtype)  # (..., S, ways)
    return F.normalize(members.transpose(-1, -2) @ support, dim=-1)


def left_out_cosines(query: Tensor, support: Tensor, labels: Tensor, sums: Tensor) -> Tensor:
    """Return the cosines of supports with the prototypes that the other supports have.

    Parameters
    ----------
    query, support
        (S, d) representations of the supports as queries and as supports.
    labels
        (S,) int64 their classes in 0..N−1.
    sums
        (N, d) sums of all supports of every class.

    Returns
    -------
    Tensor
        (S, N); 0 for the own class of a support that is alone in it.
    """
    cosines = query @ F.normalize(sums, dim=-1).mT  # (S, N)
    without = sums[labels] - support  # (S, d)
    # What rounding leaves of a class with one support is no direction.
    is_empty = without.norm(dim=-1) < 1e-4
    own = (query * F.normalize(without, dim=-1)).sum(dim=-1).masked_fill(is_empty, 0.0)
    return cosines.scatter(1, labels[:, None], own[:, None])


def class_means(features: Tensor, labels: Tensor, ways: int) -> Tensor:
    """Return the mean (..., ways, d) of the features (..., S, d) of every class."""
    members = F.one_hot(labels, ways).to(features.dtype)  # (..., S, ways)
    return members.mT @ features / members.sum(dim=-2)[..., None]


def squared_distances(a: Tensor, b: Tensor) -> Tensor:
    """Return ‖a − b‖² between the rows of (..., n, d) and (..., m, d): (..., n, m)."""
    products = a @ b.mT
    return a.square().sum(-1)[..., :, None] + b.square().sum(-1)[..., None, :] - 2 * products
