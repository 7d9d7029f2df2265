"""The reconstruction of Meta-SVEBM: gradients of its loss, adaptation, rule, and its name."""

from __future__ import annotations

import pytest
import torch
from latent_tasks import IMAGE, images, scores, task
from steps import run_loss
from torch import nn

from psco.errors import InputError
from psco.evaluation.rules import RULES
from psco.evaluation.tables.reader import read_table, table_names
from psco.methods import METHODS
from psco.methods.meta_svebm import MetaSVEBM, energy_loss
from psco.networks import Networks
from psco.networks.generative.latent_energy import symbol_logits


def svebm(**options) -> MetaSVEBM:
    torch.manual_seed(0)
    f = nn.Sequential(nn.Flatten(), nn.Linear(64, 12), nn.ReLU())
    options = {"symbols": 3, "latent": 4, "hidden": 8, "width": 4, "set_size": 6, **options}
    method = MetaSVEBM(Networks(f, width=12, image=IMAGE), langevin_steps=3, **options)
    method.set_batch_size(12)
    return method


def test_the_loss_of_a_prior_is_that_of_a_loop_and_its_gradient_is_of_both_samples():
    method = svebm().double()
    weights = method.energy.weights(2)
    z = torch.randn(2, 6, 4, dtype=torch.float64, requires_grad=True)
    negatives = torch.randn(2, 5, 4, dtype=torch.float64, requires_grad=True)
    loss, _ = energy_loss(weights, z, negatives)

    def free_energy(point):
        first, second, last = method.energy.layers
        hidden = nn.functional.leaky_relu(second(nn.functional.leaky_relu(first(point), 0.2)), 0.2)
        return (10 * (last(hidden) / 10).tanh()).exp().sum().log()

    positive = sum(free_energy(point) for point in z.flatten(0, 1)) / 12
    negative = sum(free_energy(point) for point in negatives.flatten(0, 1)) / 10
    torch.testing.assert_close(loss, negative - positive)
    loss.backward()
    assert z.grad is not None
    assert negatives.grad is None  # samples of the prior are constants


def test_adaptation_takes_the_steps_of_gradient_descent_on_the_set():
    method = svebm(inner_steps=1, inner_rate=0.3, information_weight=0.0)
    z = torch.randn(2, 6, 4)
    torch.manual_seed(7)
    moved = method._adapt(z)
    for b in range(2):
        leaves = [w[:1].detach().requires_grad_() for w in method.energy.weights(1)]
        torch.manual_seed(7)
        negatives = method.negatives(method.energy.weights(2), z)[b : b + 1]
        gradients = torch.autograd.grad(energy_loss(leaves, z[b : b + 1], negatives)[0], leaves)
        for new, old, g in zip(moved, leaves, gradients, strict=True):
            torch.testing.assert_close(new[b], (old - 0.3 * g)[0])


def test_the_loss_trains_encoder_decoder_and_prior():
    method = svebm()
    x = images().float()
    run_loss(method, x, x)["total"].backward()
    for part in (method.backbone, method.posterior, method.decoder, method.energy):
        assert all(p.grad is not None and p.grad.isfinite().all() for p in part.parameters())


@pytest.mark.parametrize("queries", ["together", "alone"])
def test_the_rule_classifies_separated_classes_and_does_not_depend_on_the_other_tasks(queries):
    method = svebm().eval()
    with torch.no_grad():
        method.posterior.weight.zero_()
        method.posterior.weight[:4, :4] = torch.eye(4)
        method.posterior.bias.zero_()
    supports, labels, asked, heads, truth = task(method, separation=8.0)
    rule = RULES["svebm"](steps=40, langevin_steps=2, queries=queries)
    with torch.inference_mode():
        both = scores(rule, supports, labels, asked, heads, first=5)
    assert (both.argmax(dim=2) == truth).all()
    one = torch.tensor([1])
    alone = scores(rule, supports[one], labels[one], asked[one], heads, first=6)
    torch.testing.assert_close(alone[0], both[1], rtol=1e-3, atol=1e-3)


def test_the_rule_leaves_the_network_as_it_was_and_needs_one_of_the_method():
    method = svebm().eval()
    before = {name: value.clone() for name, value in method.state_dict().items()}
    supports, labels, asked, heads, _ = task(method)
    scores(RULES["svebm"](steps=2, langevin_steps=2), supports, labels, asked, heads)
    assert all(torch.equal(before[name], value) for name, value in method.state_dict().items())
    with pytest.raises(InputError, match="'svebm' needs a run of the method 'meta-svebm'"):
        scores(RULES["svebm"](), supports, labels, asked, None)


def test_it_is_called_a_reconstruction_and_never_stands_beside_the_published_numbers():
    method = METHODS["meta-svebm"]
    assert "reconstruction from the abstract" in method.title
    assert method.summary.startswith("reconstruction from the abstract")
    for name in table_names():
        for row in read_table(name).rows:
            if row.method == "meta-svebm":
                assert not row.paper
                assert "reconstruction from the abstract" in row.name


def test_symbols_are_replaced_by_the_classes_of_a_task():
    method = svebm(symbols=9).eval()
    supports, labels, asked, heads, _ = task(method)
    found = scores(RULES["svebm"](steps=1, langevin_steps=1), supports, labels, asked, heads)
    assert found.shape == (2, 12, 3)
    assert symbol_logits(method.energy.weights(1), torch.zeros(1, 1, 4)).shape == (1, 1, 9)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"symbols": 1}, "symbols must be at least 2, got 1"),
        ({"step_size": 0.0}, r"step_size must be > 0, got 0\.0"),
        ({"information_weight": -1.0}, "information_weight must be at least 0, got -1"),
        ({"inner_steps": -1}, "inner_steps must be at least 0, got -1"),
    ],
)
def test_settings_that_make_no_sense_are_refused(options, message):
    with pytest.raises(InputError, match=message):
        svebm(**options)
