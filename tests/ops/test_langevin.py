"""Langevin dynamics on a Gaussian whose moments after every step are known."""

from __future__ import annotations

import pytest
import torch

from psco.ops.langevin import langevin


@pytest.mark.parametrize(("steps", "size"), [(1, 0.4), (5, 0.4), (400, 0.3)])
def test_the_moments_on_a_gaussian_are_those_of_the_recursion(steps, size):
    torch.manual_seed(0)
    mean, variance = torch.tensor([1.0, -2.0]), torch.tensor([0.5, 2.0])
    z = langevin(lambda z: (mean - z) / variance, torch.randn(1, 40_000, 2), steps, size)
    m, v = torch.zeros(2), torch.ones(2)  # of the start
    keep = 1 - size**2 / (2 * variance)
    for _ in range(steps):
        m, v = keep * m + (1 - keep) * mean, keep**2 * v + size**2
    torch.testing.assert_close(z[0].mean(dim=0), m, atol=0.03, rtol=0)
    torch.testing.assert_close(z[0].var(dim=0), v, atol=0, rtol=0.03)
    if steps == 400:  # the stationary law, up to the error of a finite step
        torch.testing.assert_close(z[0].mean(dim=0), mean, atol=0.03, rtol=0)
        torch.testing.assert_close(z[0].var(dim=0), variance, atol=0, rtol=0.1)


def test_rows_with_generators_of_their_own_do_not_depend_on_one_another():
    def run(numbers):
        generators = [torch.Generator().manual_seed(n) for n in numbers]
        return langevin(torch.neg, torch.ones(len(numbers), 3, 2), 4, 0.4, generators)

    together = run([5, 6, 7])
    assert torch.equal(run([6])[0], together[1])
    assert not torch.equal(together[0], together[1])
