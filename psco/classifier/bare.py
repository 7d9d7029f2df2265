"""Bare features, without the network that made them: a rule and a standard form for them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from psco.evaluation.rules import Embeddings, Heads


def bare_embeddings(features: np.ndarray) -> Embeddings:
    """Give features (n, width) as points that no head has seen."""
    table = torch.tensor(features)
    return Embeddings(table, table, table)


def class_means(features: Tensor, labels: Tensor, ways: int) -> Tensor:
    """Average the features (..., S, width) of every class of labels (..., S): (..., N, width)."""
    members = F.one_hot(labels, ways).to(features.dtype)  # (..., S, N)
    return members.transpose(-1, -2) @ features / members.sum(dim=-2)[..., None]


@dataclass(frozen=True)
class NearestMean:
    """Minus the squared Euclidean distance to the mean of a class: for features of any kind.

    Features that no one has trained for cosines may differ in length only, or be single numbers;
    distances tell them apart all the same.
    """

    transductive: ClassVar[bool] = False

    def __call__(
        self,
        support: Embeddings,
        labels: Tensor,
        query: Embeddings,
        ways: int,
        heads: Heads | None = None,  # noqa: ARG002
    ) -> Tensor:
        """Give scores (T, Q, N), all at most 0."""
        means = class_means(support.features, labels, ways)  # (T, N, width)
        # The quick way by way of products is not exact enough for near points far from 0.
        plain = "donot_use_mm_for_euclid_dist"
        return -torch.cdist(query.features, means, compute_mode=plain).square()


@dataclass(frozen=True)
class Standard:
    """Brings bare features to where every rule can use them: centred, of size 1.

    Parameters
    ----------
    centre
        (width,) mean of the supports.
    scale
        Root mean square of what is left of them, one number for all features.
    """

    centre: Tensor
    scale: float

    @classmethod
    def of(cls, features: Tensor) -> Standard:
        """Take centre and scale from features (S, width)."""
        centre = features.mean(dim=0)
        scale = float((features - centre).square().mean().sqrt())
        return cls(centre, scale or 1.0)

    def __call__(self, points: Embeddings) -> Embeddings:
        """Give points whose features are standard, and whose other parts are these, normalised."""
        features = (points.features - self.centre) / self.scale
        unit = F.normalize(features, dim=-1)
        return Embeddings(features, unit, unit)
