"""The nearest class mean on the backbone's features, by cosine or by Euclidean distance."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor

from psco.evaluation.rules.rule import Embeddings, SupportSet
from psco.ops.prototypes import class_means, prototypes


@dataclass(frozen=True)
class ClassMean:
    """By cosine: the paper's prototypes on normalised features, for networks without heads.

    Parameters
    ----------
    normalise
        Whether supports are scaled to unit length before their mean is taken.
    """

    normalise: bool = True
    transductive: ClassVar[bool] = False

    def __call__(self, support: SupportSet, query: Embeddings) -> Tensor:
        """Return cosines (T, Q, N)."""
        x = support.embeddings.features  # (T, S, width)
        x = F.normalize(x, dim=-1) if self.normalise else x
        c = prototypes(x, support.labels, support.ways)  # (T, N, width)
        return F.normalize(query.features, dim=-1) @ c.mT


@dataclass(frozen=True)
class NearestMean:
    """By squared Euclidean distance, without normalisation: the rule of ProtoNets."""

    transductive: ClassVar[bool] = False

    def __call__(self, support: SupportSet, query: Embeddings) -> Tensor:
        """Return negated squared distances (T, Q, N)."""
        features = support.embeddings.features  # (T, S, width)
        means = class_means(features, support.labels, support.ways)  # (T, N, width)
        # ‖a‖² + ‖b‖² − 2a·b would cancel for features that are close together but far from 0.
        exact = "donot_use_mm_for_euclid_dist"
        return -torch.cdist(query.features, means, compute_mode=exact).square()
