"""The energy-based prior: its gradient against autograd, and the information in its symbols."""

from __future__ import annotations

import math

import pytest
import torch

from psco.networks.generative.latent_energy import (
    LatentEnergy,
    mutual_information,
    score,
    symbol_logits,
)


@pytest.fixture
def weights():
    torch.manual_seed(0)
    energy = LatentEnergy(3, symbols=5, hidden=7).double()
    shared = energy.weights(2)
    return [w + 0.3 * torch.randn_like(w) for w in shared]


def test_the_score_is_the_gradient_of_the_log_density(weights):
    z = torch.randn(2, 6, 3, dtype=torch.float64, requires_grad=True)
    density = symbol_logits(weights, z).logsumexp(dim=2) - z.square().sum(dim=2) / 2
    (expected,) = torch.autograd.grad(density.sum(), z)
    torch.testing.assert_close(score(weights, z), expected)


def test_priors_side_by_side_are_those_of_the_layers():
    torch.manual_seed(0)
    energy, z = LatentEnergy(3, symbols=5, hidden=7), torch.randn(2, 6, 3)
    first, second, last = energy.layers
    twin = 10 * (last(_leaky(second(_leaky(first(z))))) / 10).tanh()
    torch.testing.assert_close(symbol_logits(energy.weights(2), z), twin)


def _leaky(x):
    return torch.nn.functional.leaky_relu(x, 0.2)


def test_the_information_is_that_of_the_definition():
    logits = torch.randn(2, 6, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    for b, found in enumerate(mutual_information(logits)):
        p = logits[b].softmax(dim=1).tolist()
        mean = [sum(row[y] for row in p) / 6 for y in range(4)]
        entropies = [-sum(q * math.log(q) for q in row) for row in p]
        expected = -sum(q * math.log(q) for q in mean) - sum(entropies) / 6
        assert found.item() == pytest.approx(expected, abs=1e-12)


def test_certain_and_equally_common_symbols_have_the_most_information():
    certain = 1e4 * torch.eye(4)[None]
    assert mutual_information(certain).item() == pytest.approx(math.log(4))
    assert mutual_information(torch.zeros(1, 4, 4)).item() == pytest.approx(0, abs=1e-6)
    assert mutual_information(certain[:, :1].expand(1, 5, 4)).item() == pytest.approx(0, abs=1e-6)
