"""The rule ``adapt`` done once and for all: heads trained on the supports of a classifier.

The rule itself trains heads for every task it is given and keeps only what they say. A classifier
has one task and any number of queries, so it keeps the heads.
"""

from __future__ import annotations

import copy

import torch
import torch.nn.functional as F
from torch import Tensor

from psco.errors import InputError
from psco.methods.psco import contrastive_loss
from psco.rules import Heads, Points
from psco.rules.sgd import LEARNING_RATE, MOMENTUM, WEIGHT_DECAY


def adapt_heads(features: Tensor, labels: Tensor, heads: Heads, steps: int) -> Heads:
    """Train copies of heads as the rule ``adapt`` does.

    Parameters
    ----------
    features, labels
        (S, width) features of the supports and (S,) their classes; S > 1.
    heads
        Left as they are.
    steps
        Steps of gradient descent on all supports.

    Raises
    ------
    InputError
        If there is a single support.
    """
    if len(labels) < 2:
        raise InputError("adapting needs two supports at least, for BatchNorm's sake; there is 1")
    adapted = copy.deepcopy(heads)
    g, h = adapted.projector.train(), adapted.predictor.train()
    weights = [*g.parameters(), *h.parameters()]
    velocities = [torch.zeros_like(weight) for weight in weights]
    same = labels[:, None] == labels  # (S, S)
    for _ in range(steps):
        with torch.enable_grad():
            z = g(features)  # (S, d)
            q, k = F.normalize(h(z), dim=1), F.normalize(z, dim=1)
            loss = contrastive_loss(q, k, same, heads.temperature)
            gradients = torch.autograd.grad(loss, weights)
        # SGD in three lines: torch.optim takes longer to import than all the steps together.
        with torch.no_grad():
            for weight, velocity, gradient in zip(weights, velocities, gradients, strict=True):
                velocity.mul_(MOMENTUM).add_(gradient).add_(weight, alpha=WEIGHT_DECAY)
                weight.sub_(velocity, alpha=LEARNING_RATE)
    g.eval()
    h.eval()
    return adapted


@torch.no_grad()
def project(points: Points, heads: Heads) -> Points:
    """Send the features of points (n,) through other heads."""
    z = heads.projector(points.features)
    query = F.normalize(heads.predictor(z), dim=1)
    return Points(points.features, F.normalize(z, dim=1), query)
