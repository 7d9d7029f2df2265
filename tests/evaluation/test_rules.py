"""Nearest neighbours, the linear probe and the regressions against task-by-task references."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from rule_tasks import draw, embed, equal_shots, score
from sklearn.linear_model import LogisticRegression
from sklearn.linear_model import Ridge as SklearnRidge
from sklearn.neighbors import KNeighborsClassifier
from torch import nn

from psco.errors import InputError
from psco.evaluation.rules import RULES, Embeddings
from psco.evaluation.rules.linear import draw_start
from psco.evaluation.rules.sgd import decay_factors, start_sgd, step, step_product, step_rows

WIDTH = 20  # of the features

# ------------------------------------------------------------------------------ nearest neighbours


@pytest.mark.parametrize("k", [None, 2])
def test_knn_counts_the_votes_of_the_nearest_supports_by_cosine(k, setting, heads):
    support, labels, query, ways = setting
    votes = score(RULES["knn"](k=k), *setting, heads)
    for t in range(3):
        number = k or min(np.bincount(labels[t]))
        for q in range(15):
            cosines = F.cosine_similarity(query.features[t, q], support.features[t], dim=1).tolist()
            near = sorted(range(len(cosines)), key=lambda s: -cosines[s])[:number]
            expected = np.bincount(labels[t, near], minlength=ways)
            assert votes[t, q].tolist() == expected.tolist()


@pytest.mark.parametrize("setting", ["four"], indirect=True)
def test_knn_predicts_as_scikit_learn_and_gives_draws_to_the_lowest_class(setting, heads):
    support, labels, query, _ = setting
    votes = score(RULES["knn"](), *setting, heads)
    top = votes.topk(2, dim=2).values
    assert (top[..., 0] == top[..., 1]).any()
    for t in range(3):
        knn = KNeighborsClassifier(4, metric="cosine").fit(support.features[t], labels[t])
        assert votes[t].argmax(dim=1).tolist() == knn.predict(query.features[t]).tolist()


@pytest.mark.parametrize("k", [0, 7])
@pytest.mark.parametrize("setting", ["unequal"], indirect=True)
def test_knn_refuses_more_neighbours_than_supports(k, setting, heads):
    with pytest.raises(InputError, match=f"between 1 and the 6 supports of a task, got {k}"):
        score(RULES["knn"](k=k), *setting, heads)


# --------------------------------------------------------------------------------- the linear probe


def train_probe(x, y, xq, ways, epochs, seed, task):
    """Train one task's layer with torch's optimiser from the weights and orders of the rule."""
    start, orders = draw_start(seed, task, WIDTH + 1, ways, epochs, len(x))
    layer = nn.Linear(WIDTH, ways)
    layer.weight.data, layer.bias.data = start[:-1].T.clone(), start[-1].clone()
    optimiser = torch.optim.SGD(layer.parameters(), lr=0.01, momentum=0.9, weight_decay=0.001)
    batch = min(4, len(x))
    for order in orders:
        for begin in range(0, len(x) - batch + 1, batch):
            rows = order[begin : begin + batch]
            optimiser.zero_grad()
            F.cross_entropy(layer(x[rows]), y[rows]).backward()
            optimiser.step()
    return layer(xq).detach()


def test_linear_equals_a_layer_trained_task_by_task(setting, heads):
    support, labels, query, ways = setting
    scores = score(RULES["linear"](epochs=40, seed=3), *setting, heads, first=7)
    for t in range(3):
        task = support.features[t], labels[t], query.features[t]
        expected = train_probe(*task, ways, 40, 3, task=7 + t)
        torch.testing.assert_close(scores[t], expected, rtol=1e-4, atol=1e-4)


def test_linear_draws_initial_weights_and_orders_for_each_task_alone(heads):
    support, labels, query, ways = draw(equal_shots(1, 3, 4), equal_shots(1, 3, 5), 3, heads)
    twice = torch.tensor([0, 0])  # the same task two times, under two numbers
    scores = score(RULES["linear"](epochs=5), support[twice], labels[twice], query[twice], ways)
    assert not torch.allclose(scores[0], scores[1])
    starts = [draw_start(0, task, 65, 5, 100, 25) for task in range(2)]
    assert starts[0][0].std() == pytest.approx(1 / math.sqrt(3 * 64), rel=0.1)  # uniform, ±1/√64
    assert not torch.equal(starts[0][0], starts[1][0])
    assert not torch.equal(starts[0][1], starts[1][1])
    assert torch.equal(starts[0][1].sort(dim=1).values, torch.arange(25).expand(100, -1))


@pytest.mark.parametrize("setting", ["four"], indirect=True)
def test_linear_is_decided_by_its_seed(setting, heads):
    first = score(RULES["linear"](epochs=5), *setting, heads)
    assert torch.equal(first, score(RULES["linear"](epochs=5), *setting, heads))
    assert not torch.allclose(first, score(RULES["linear"](epochs=5, seed=1), *setting, heads))


def test_a_trained_parameter_takes_the_steps_of_torchs_sgd():
    generator = torch.Generator().manual_seed(0)
    start = torch.randn(2, 3, 4, generator=generator, dtype=torch.float64)
    twin = nn.Parameter(start.clone())
    optimiser = torch.optim.SGD([twin], lr=0.01, momentum=0.9, weight_decay=0.001)
    whole, product, rows = start_sgd(start), start_sgd(start), start_sgd(start)
    for _ in range(60):
        left = torch.randn(2, 5, 3, generator=generator, dtype=torch.float64)
        right = torch.randn(2, 5, 4, generator=generator, dtype=torch.float64)
        twin.grad = left.mT @ right
        optimiser.step()
        step(whole, left.mT @ right)
        step_product(product, left, right)
        order = torch.tensor([[2, 0, 1], [1, 2, 0]])
        step_rows(rows, torch.stack([(left.mT @ right)[t, order[t]] for t in range(2)]), order)
    for weights in (whole, product, rows):
        torch.testing.assert_close(weights.value, twin.data, rtol=1e-10, atol=1e-10)


def test_the_decay_factors_are_what_weight_decay_leaves_of_the_start():
    alone = nn.Parameter(torch.ones(1, dtype=torch.float64))
    optimiser = torch.optim.SGD([alone], lr=0.01, momentum=0.9, weight_decay=0.001)
    for factor in decay_factors(30):
        assert alone.item() == pytest.approx(factor, abs=1e-12)
        alone.grad = torch.zeros_like(alone)
        optimiser.step()


# -------------------------------------------------------------------------------------- regression


def standardised(support, query):
    """Unit length, less the supports' mean, over their root mean square distance from it."""
    s = (support / support.norm(dim=1, keepdim=True)).double().numpy()
    q = (query / query.norm(dim=1, keepdim=True)).double().numpy()
    spread = math.sqrt(np.mean(np.sum((s - s.mean(axis=0)) ** 2, axis=1)))
    return (s - s.mean(axis=0)) / spread, (q - s.mean(axis=0)) / spread


@pytest.mark.parametrize("strength", [0.2, 5.0])
def test_ridge_equals_scikit_learns(strength, setting, heads):
    support, labels, query, ways = setting
    scores = score(RULES["ridge"](strength=strength), *setting, heads)
    for t in range(3):
        s, q = standardised(support.features[t], query.features[t])
        twin = SklearnRidge(alpha=strength).fit(s, np.eye(ways)[labels[t]])
        np.testing.assert_allclose(scores[t], twin.predict(q), atol=1e-4)


@pytest.mark.parametrize("C", [1.0, 10.0, 30.0])
def test_logistic_has_converged_to_the_probabilities_of_scikit_learns(C, setting, heads):
    support, labels, query, _ = setting
    scores = score(RULES["logistic"](C=C), *setting, heads).softmax(dim=2)
    for t in range(3):
        s, q = standardised(support.features[t], query.features[t])
        twin = LogisticRegression(C=C, tol=1e-8, max_iter=2000).fit(s, labels[t])
        np.testing.assert_allclose(scores[t], twin.predict_proba(q), atol=1e-3)


@pytest.mark.parametrize("name", ["ridge", "logistic"])
def test_regression_ignores_the_scale_of_features_and_survives_supports_that_are_equal(name, heads):
    support, labels, query, ways = draw(equal_shots(2, 3, 4), equal_shots(2, 3, 5), 3, heads)
    large = [Embeddings(1000 * p.features, p.support, p.query) for p in (support, query)]
    scores = score(RULES[name](), support, labels, query, ways, heads)
    again = score(RULES[name](), large[0], labels, large[1], ways, heads)
    torch.testing.assert_close(again, scores, rtol=1e-3, atol=1e-3)
    alike = embed(torch.ones(2, 12, WIDTH), heads)
    assert score(RULES[name](), alike, labels, query, ways, heads).isfinite().all()


@pytest.mark.parametrize(("name", "option"), [("ridge", "strength"), ("logistic", "C")])
@pytest.mark.parametrize("setting", ["one"], indirect=True)
def test_regression_needs_a_positive_regularisation(name, option, setting, heads):
    with pytest.raises(InputError, match=f"{option} must be > 0, got 0.0"):
        score(RULES[name](**{option: 0.0}), *setting, heads)
