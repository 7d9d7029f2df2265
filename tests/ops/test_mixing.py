"""Mixed negatives against loops."""

from __future__ import annotations

import math

import pytest
import torch
import torch.nn.functional as F

from psco.ops.contrast import plain_contrast_with_queue
from psco.ops.mixing import contrast_with_mixed, mix


def units(rows: int, seed: int) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    return F.normalize(torch.randn(rows, 6, generator=generator, dtype=torch.float64), dim=1)


def slow_loss(q, z, queue, tau, count, spared, part):
    total = 0.0
    for n in range(len(q)):
        allowed = [m for m in range(len(queue)) if spared is None or m not in spared[n].tolist()]
        nearest = sorted(allowed, key=lambda m: -float(q[n].detach() @ queue[m]))[:count]
        keys = [z[n], *(queue[m] for m in allowed)]
        for c, m in zip(part[n], nearest, strict=True):
            hard = (1 - c) * queue[m] + c * q[n]
            keys.append((hard / hard.norm()).detach())
        logits = [q[n] @ key / tau for key in keys]
        total = total + torch.stack(logits).logsumexp(0) - logits[0]
    return total / len(q)


@pytest.mark.parametrize("spared", [None, torch.tensor([[0, 3], [5, 2], [1, 8], [4, 7]])])
def test_mixed_negatives_are_the_nearest_keys_moved_towards_the_query(spared):
    q, z, queue = units(4, 0).requires_grad_(), units(4, 1), units(9, 2)
    part = 0.5 * torch.rand(4, 3, dtype=torch.float64)
    fast = contrast_with_mixed(q, z, queue, 0.2, 3, spared, part)
    slow = slow_loss(q, z, queue, 0.2, 3, spared, part)
    torch.testing.assert_close(fast, slow)
    mine, theirs = (torch.autograd.grad(loss, q)[0] for loss in (fast, slow))
    torch.testing.assert_close(mine, theirs)


def test_no_part_of_the_query_counts_the_nearest_keys_twice():
    q, z, queue = units(5, 0), units(5, 1), units(12, 2)
    found = contrast_with_mixed(q, z, queue, 0.5, 12, part=torch.zeros(5, 12, dtype=torch.float64))
    expected = plain_contrast_with_queue(q, z, torch.cat([queue, queue]), 0.5)
    torch.testing.assert_close(found, expected)


def test_drawn_parts_make_the_loss_larger_and_depend_on_the_random_state_alone():
    q, z, queue = units(5, 0), units(5, 1), units(12, 2)
    losses = []
    for seed in (0, 0, 1):
        torch.manual_seed(seed)
        losses.append(float(contrast_with_mixed(q, z, queue, 0.2, 4)))
    assert losses[0] == losses[1] != losses[2]
    assert min(losses) > float(plain_contrast_with_queue(q, z, queue, 0.2))


def test_half_a_part_is_half_way_between_the_two():
    z, negative = torch.tensor([[1.0, 0.0]]), torch.tensor([[[0.0, 1.0], [-1.0, 0.0]]])
    half = mix(z, negative, torch.full((1, 2), 0.5))
    assert torch.equal(half, torch.tensor([[[0.5, 0.5], [0.0, 0.0]]]))
    assert math.isclose(float(mix(z, negative, torch.zeros(1, 2)).sum()), 0.0)
