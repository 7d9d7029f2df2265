"""Heads and few-shot tasks for tests of classification rules."""

from __future__ import annotations

import pytest
import torch
from rule_tasks import draw, equal_shots

from psco.evaluation.rules import Heads
from psco.networks import predictor, projector

WIDTH, DIM = 20, 8
UNEQUAL = torch.tensor([[0, 1, 1, 2, 2, 2], [2, 0, 1, 0, 0, 0], [1, 2, 2, 1, 0, 0]])


@pytest.fixture(scope="module")
def heads() -> Heads:
    """Return heads whose predictor, like a trained one, keeps queries near their supports."""
    with torch.random.fork_rng():
        torch.manual_seed(0)
        g, h = projector(WIDTH, 32, DIM), predictor(DIM, 2 * DIM)
        both = torch.cat([torch.eye(DIM), -torch.eye(DIM)])  # ReLU(u) − ReLU(−u) = u
        h[0].weight.data, h[3].weight.data = both, both.T.contiguous()
        for _ in range(20):
            h(g(torch.randn(64, WIDTH)))
    return Heads(g.eval(), h.eval(), 0.5)


@pytest.fixture(params=["one", "four", "unequal"])
def setting(request, heads):
    """Three 3-way tasks with one shot, four shots or unequal shots, and 5 queries per class."""
    labels = {"one": equal_shots(3, 3, 1), "four": equal_shots(3, 3, 4), "unequal": UNEQUAL}
    return draw(labels[request.param], equal_shots(3, 3, 5), 3, heads)
