"""Bare features, without the network that made them: a rule and a standard form for them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from psco.evaluation.rules import Embeddings


def bare_embeddings(features: np.ndarray) -> Embeddings:
    """Give features (n, width) as points that no head has seen."""
    table = torch.tensor(features)
    return Embeddings(table, table, table)


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
