"""Nearest class centre: the paper's rule, and its plain form for any features."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor

from psco.evaluation.rules.rule import Embeddings, Heads
from psco.ops.prototypes import prototypes, squared_distances


@dataclass(frozen=True)
class Prototype:
    """Section 3.3 of the paper: q·c_y with c_y the normalised sum of the supports of class y."""

    transductive: ClassVar[bool] = False

    def __call__(
        self,
        support: Embeddings,
        labels: Tensor,
        query: Embeddings,
        ways: int,
        heads: Heads | None = None,  # noqa: ARG002
    ) -> Tensor:
        """Give cosines (T, Q, N)."""
        c = prototypes(support.support, labels, ways)  # (T, N, d)
        return query.query @ c.transpose(1, 2)


@dataclass(frozen=True)
class ClassMean:
    """The same with the backbone's normalised features, for networks without such heads."""

    transductive: ClassVar[bool] = False

    def __call__(
        self,
        support: Embeddings,
        labels: Tensor,
        query: Embeddings,
        ways: int,
        heads: Heads | None = None,  # noqa: ARG002
    ) -> Tensor:
        """Give cosines (T, Q, N)."""
        c = prototypes(F.normalize(support.features, dim=-1), labels, ways)  # (T, N, width)
        return F.normalize(query.features, dim=-1) @ c.transpose(1, 2)


@dataclass(frozen=True)
class Euclidean:
    """The rule of ProtoNets: the nearest mean of the backbone's features, as they are."""

    transductive: ClassVar[bool] = False

    def __call__(
        self,
        support: Embeddings,
        labels: Tensor,
        query: Embeddings,
        ways: int,
        heads: Heads | None = None,  # noqa: ARG002
    ) -> Tensor:
        """Give squared distances (T, Q, N), negated."""
        means = class_means(support.features, labels, ways)  # (T, N, width)
        return -squared_distances(query.features, means)


@dataclass(frozen=True)
class NearestMean:
    """As `Euclidean`, with distances that are exact for features of any origin and scale."""

    transductive: ClassVar[bool] = False

    def __call__(
        self,
        support: Embeddings,
        labels: Tensor,
        query: Embeddings,
        ways: int,
        heads: Heads | None = None,  # noqa: ARG002
    ) -> Tensor:
        """Return squared distances (T, Q, N), negated."""
        means = class_means(support.features, labels, ways)  # (T, N, width)
        # ‖a‖² + ‖b‖² − 2ab cancels where the distance is small against the lengths.
        mode = "donot_use_mm_for_euclid_dist"
        return -torch.cdist(query.features, means, compute_mode=mode).square()


def class_means(features: Tensor, labels: Tensor, ways: int) -> Tensor:
    """Return the mean feature (..., N, width) of each class.

    Parameters
    ----------
    features, labels
        (..., S, width), and (..., S) int64 in 0..ways−1; every class occurs.
    ways
        Number of classes N.
    """
    members = F.one_hot(labels, ways).to(features.dtype)  # (..., S, N)
    return members.mT @ features / members.sum(dim=-2)[..., None]
