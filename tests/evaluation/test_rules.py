"""Classification rules against slow twins, one task and one query at a time."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from sklearn.linear_model import LogisticRegression
from sklearn.linear_model import Ridge as SklearnRidge
from sklearn.neighbors import KNeighborsClassifier
from torch import nn

from psco.errors import InputError
from psco.evaluation.rules import RULES, Embeddings, Heads
from psco.evaluation.rules.sgd import remains, step, step_product, step_rows, trained
from psco.networks import predictor, projector

WIDTH, DIM = 20, 8
# Those that train a whole network take pictures, not points: tests/test_finetune.py.
NAMES = [name for name in RULES if not getattr(RULES[name], "needs_pixels", False)]
INDUCTIVE = [name for name in NAMES if not RULES[name].transductive]


@pytest.fixture(scope="module")
def heads() -> Heads:
    with torch.random.fork_rng():
        torch.manual_seed(0)
        g, h = projector(WIDTH, 32, DIM), predictor(DIM, 2 * DIM)
        # ReLU(u) − ReLU(−u): like a trained predictor, this one keeps queries near their supports.
        both = torch.cat([torch.eye(DIM), -torch.eye(DIM)])
        h[0].weight.data, h[3].weight.data = both, both.T.contiguous()
        for _ in range(20):
            h(g(torch.randn(64, WIDTH)))
    return Heads(g.eval(), h.eval(), 0.5)


def points(features: torch.Tensor, heads: Heads) -> Embeddings:
    """Embed (T, n, WIDTH) as an encoder would."""
    with torch.no_grad():
        u = heads.projector(features.flatten(0, 1))
        v = heads.predictor(u)
    return Embeddings(
        features,
        F.normalize(u, dim=1).view(*features.shape[:2], -1),
        F.normalize(v, dim=1).view(*features.shape[:2], -1),
    )


def draw(labels, query_labels, ways, heads, separation=1.0, seed=0):
    """Draw Gaussian clusters, not of zero mean, for labels (T, S) and (T, Q)."""
    generator = torch.Generator().manual_seed(seed)
    centres = separation * torch.randn(len(labels), ways, WIDTH, generator=generator)

    def sample(y):
        noise = torch.randn(*y.shape, WIDTH, generator=generator)
        return centres.gather(1, y[..., None].expand(-1, -1, WIDTH)) + noise + 0.5

    return points(sample(labels), heads), labels, points(sample(query_labels), heads), ways


def equal_shots(tasks, ways, shots):
    return torch.arange(ways).repeat_interleave(shots).expand(tasks, -1)


UNEQUAL = torch.tensor([[0, 1, 1, 2, 2, 2], [2, 0, 1, 0, 0, 0], [1, 2, 2, 1, 0, 0]])


@pytest.fixture
def setting(request, heads):
    """Tasks of 3 ways: one shot, four shots or unequal shots, in which k and batches differ."""
    labels = {"one": equal_shots(3, 3, 1), "four": equal_shots(3, 3, 4), "unequal": UNEQUAL}
    return draw(labels[request.param], equal_shots(3, 3, 5), 3, heads)


every_setting = pytest.mark.parametrize("setting", ["one", "four", "unequal"], indirect=True)


def score(name, setting, heads, **options):
    return RULES[name](**options)(*setting, heads)


# --------------------------------------------------------------------------- what all rules promise


@every_setting
@pytest.mark.parametrize("name", NAMES)
def test_a_rule_gives_one_finite_score_for_each_query_and_class(name, setting, heads):
    scores = score(name, setting, heads)
    assert scores.shape == (3, 15, 3)
    assert scores.dtype == torch.float32
    assert scores.isfinite().all()


@every_setting
@pytest.mark.parametrize("name", NAMES)
def test_a_task_is_scored_alike_alone_and_among_others(name, setting, heads):
    support, labels, query, ways = setting
    together = score(name, setting, heads)
    for t in range(3):
        one = torch.tensor([t])
        alone = RULES[name]()(support[one], labels[one], query[one], ways, heads)
        torch.testing.assert_close(alone[0], together[t], rtol=1e-4, atol=1e-4)


def reordered(setting):
    support, labels, query, ways = setting
    order = torch.randperm(15, generator=torch.Generator().manual_seed(1))
    pick = Embeddings(query.features[:, order], query.support[:, order], query.query[:, order])
    return (support, labels, pick, ways), order


@every_setting
@pytest.mark.parametrize("name", INDUCTIVE)
def test_an_inductive_rule_scores_a_query_alike_whatever_the_other_queries(name, setting, heads):
    support, labels, query, ways = setting
    together = score(name, setting, heads)
    shuffled, order = reordered(setting)
    torch.testing.assert_close(score(name, shuffled, heads), together[:, order], rtol=0, atol=1e-5)
    for one in range(0, 15, 7):
        only = slice(one, one + 1)
        alone = Embeddings(query.features[:, only], query.support[:, only], query.query[:, only])
        scores = score(name, (support, labels, alone, ways), heads)
        torch.testing.assert_close(scores, together[:, only], rtol=0, atol=1e-5)


@pytest.mark.parametrize("setting", ["four"], indirect=True)
def test_the_transductive_rule_depends_on_the_other_queries_but_not_on_their_order(setting, heads):
    assert [name for name in RULES if RULES[name]().transductive] == ["transductive"]
    support, labels, query, ways = setting
    together = score("transductive", setting, heads)
    shuffled, order = reordered(setting)
    torch.testing.assert_close(score("transductive", shuffled, heads), together[:, order])
    few = Embeddings(query.features[:, :4], query.support[:, :4], query.query[:, :4])
    apart = score("transductive", (support, labels, few, ways), heads)
    assert not torch.allclose(apart, together[:, :4], atol=1e-3)


@pytest.mark.parametrize("name", NAMES)
def test_every_rule_learns_clusters_that_lie_apart(name, heads):
    setting = draw(equal_shots(20, 3, 5), truth := equal_shots(20, 3, 10), 3, heads, separation=3)
    # Untrained heads lose some of what the features tell.
    assert (score(name, setting, heads).argmax(dim=2) == truth).float().mean() > 0.9


@pytest.mark.parametrize("name", NAMES)
def test_rules_work_where_gradients_are_off_and_leave_the_heads_alone(name, heads):
    before = [*heads.projector.state_dict().values(), *heads.predictor.state_dict().values()]
    before = [tensor.clone() for tensor in before]
    with torch.inference_mode():
        setting = draw(equal_shots(2, 3, 2), equal_shots(2, 3, 2), 3, heads)
        scores = score(name, setting, heads)
    assert not scores.requires_grad
    after = [*heads.projector.state_dict().values(), *heads.predictor.state_dict().values()]
    assert all(torch.equal(a, b) for a, b in zip(before, after, strict=True))
    assert not heads.projector.training


# ------------------------------------------------------------------------------ nearest neighbours


@every_setting
@pytest.mark.parametrize("k", [None, 2])
def test_knn_counts_the_votes_of_the_nearest_supports_by_cosine(k, setting, heads):
    support, labels, query, ways = setting
    votes = score("knn", setting, heads, k=k)
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
    votes = score("knn", setting, heads)
    top = votes.topk(2, dim=2).values
    assert (top[..., 0] == top[..., 1]).any()
    for t in range(3):
        knn = KNeighborsClassifier(4, metric="cosine").fit(support.features[t], labels[t])
        assert votes[t].argmax(dim=1).tolist() == knn.predict(query.features[t]).tolist()


@pytest.mark.parametrize("k", [0, 7])
@pytest.mark.parametrize("setting", ["unequal"], indirect=True)
def test_knn_refuses_more_neighbours_than_supports(k, setting, heads):
    with pytest.raises(InputError, match=f"between 1 and the 6 supports of a task, not {k}"):
        score("knn", setting, heads, k=k)


# --------------------------------------------------------------------------------- the linear probe


def probe_twin(x, y, xq, ways, epochs, seed):
    """Train a layer with torch's own optimiser, in the orders that the rule draws."""
    random = torch.Generator().manual_seed(seed)
    start = (2 * torch.rand(WIDTH + 1, ways, generator=random) - 1) / math.sqrt(WIDTH)
    layer = nn.Linear(WIDTH, ways)
    layer.weight.data, layer.bias.data = start[:-1].T.clone(), start[-1].clone()
    optimiser = torch.optim.SGD(layer.parameters(), lr=0.01, momentum=0.9, weight_decay=0.001)
    batch = min(4, len(x))
    for _ in range(epochs):
        order = torch.randperm(len(x), generator=random)
        for begin in range(0, len(x) - batch + 1, batch):
            rows = order[begin : begin + batch]
            optimiser.zero_grad()
            F.cross_entropy(layer(x[rows]), y[rows]).backward()
            optimiser.step()
    return layer(xq).detach()


@every_setting
def test_linear_equals_a_layer_trained_task_by_task(setting, heads):
    support, labels, query, ways = setting
    scores = score("linear", setting, heads, epochs=40, seed=3)
    for t in range(3):
        expected = probe_twin(support.features[t], labels[t], query.features[t], ways, 40, 3)
        torch.testing.assert_close(scores[t], expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("setting", ["four"], indirect=True)
def test_linear_is_decided_by_its_seed(setting, heads):
    first = score("linear", setting, heads, epochs=5)
    assert torch.equal(first, score("linear", setting, heads, epochs=5))
    assert not torch.allclose(first, score("linear", setting, heads, epochs=5, seed=1))


def test_a_trained_parameter_takes_the_steps_of_torchs_sgd():
    generator = torch.Generator().manual_seed(0)
    start = torch.randn(2, 3, 4, generator=generator, dtype=torch.float64)
    twin = nn.Parameter(start.clone())
    optimiser = torch.optim.SGD([twin], lr=0.01, momentum=0.9, weight_decay=0.001)
    whole, product, rows = trained(start), trained(start), trained(start)
    for _ in range(60):
        left = torch.randn(2, 5, 3, generator=generator, dtype=torch.float64)
        right = torch.randn(2, 5, 4, generator=generator, dtype=torch.float64)
        twin.grad = left.mT @ right
        optimiser.step()
        step(whole, left.mT @ right)
        step_product(product, left, right)
        step_rows(rows, (left.mT @ right)[:, [2, 0, 1]], torch.tensor([2, 0, 1]))
    for weights in (whole, product, rows):
        torch.testing.assert_close(weights.value, twin.data, rtol=1e-10, atol=1e-10)


def test_what_remains_of_the_start_is_what_weight_decay_leaves():
    alone = nn.Parameter(torch.ones(1, dtype=torch.float64))
    optimiser = torch.optim.SGD([alone], lr=0.01, momentum=0.9, weight_decay=0.001)
    for factor in remains(30):
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


@every_setting
@pytest.mark.parametrize("strength", [0.2, 5.0])
def test_ridge_equals_scikit_learns(strength, setting, heads):
    support, labels, query, ways = setting
    scores = score("ridge", setting, heads, strength=strength)
    for t in range(3):
        s, q = standardised(support.features[t], query.features[t])
        twin = SklearnRidge(alpha=strength).fit(s, np.eye(ways)[labels[t]])
        np.testing.assert_allclose(scores[t], twin.predict(q), atol=1e-4)


@every_setting
@pytest.mark.parametrize("C", [1.0, 10.0, 30.0])
def test_logistic_has_converged_to_the_probabilities_of_scikit_learns(C, setting, heads):
    support, labels, query, _ = setting
    scores = score("logistic", setting, heads, C=C).softmax(dim=2)
    for t in range(3):
        s, q = standardised(support.features[t], query.features[t])
        twin = LogisticRegression(C=C, tol=1e-8, max_iter=2000).fit(s, labels[t])
        np.testing.assert_allclose(scores[t], twin.predict_proba(q), atol=1e-3)


@pytest.mark.parametrize("name", ["ridge", "logistic"])
def test_regression_ignores_the_scale_of_features_and_survives_supports_that_are_equal(name, heads):
    support, labels, query, ways = draw(equal_shots(2, 3, 4), equal_shots(2, 3, 5), 3, heads)
    large = [Embeddings(1000 * p.features, p.support, p.query) for p in (support, query)]
    scores = RULES[name]()(support, labels, query, ways, heads)
    again = RULES[name]()(large[0], labels, large[1], ways, heads)
    torch.testing.assert_close(again, scores, rtol=1e-3, atol=1e-3)
    alike = points(torch.ones(2, 12, WIDTH), heads)
    assert RULES[name]()(alike, labels, query, ways, heads).isfinite().all()


@pytest.mark.parametrize(("name", "option"), [("ridge", "strength"), ("logistic", "C")])
@pytest.mark.parametrize("setting", ["one"], indirect=True)
def test_regression_needs_a_positive_regularisation(name, option, setting, heads):
    with pytest.raises(InputError, match=f"{option} must be > 0, not 0.0"):
        score(name, setting, heads, **{option: 0.0})


# ------------------------------------------------------------------------------------- transductive


def sinkhorn_twin(logits):
    """Assign to classes of estimated size: rewrite the matrix, columns and rows in turn."""
    P = np.exp(logits)
    size = (P / P.sum(axis=1, keepdims=True)).sum(axis=0) + 1
    size = size / size.sum() * len(logits)
    for _ in range(5):
        P /= P.sum(axis=1, keepdims=True)
        P *= size / P.sum(axis=0)
    return P / P.sum(axis=1, keepdims=True)


def refinement_twin(s, y, query, keys, ways):
    sums = np.stack([s[y == n].sum(axis=0) for n in range(ways)])
    c = sums / np.linalg.norm(sums, axis=1, keepdims=True)
    for _ in range(5):
        assigned = sinkhorn_twin(query @ c.T / 0.1)
        moved = sums.copy()
        for n in range(ways):
            weights = []
            for row in assigned:
                best, second = sorted(row)[-1:-3:-1]
                weights.append(row[n] * (best - second) ** 2)
            most = 3 * np.sum(y == n)
            for weight, key in zip(weights, keys, strict=True):
                moved[n] += weight * most / (sum(weights) + most) * key
        c = moved / np.linalg.norm(moved, axis=1, keepdims=True)
    return query @ c.T


@every_setting
def test_transductive_equals_its_twin_of_loops(setting, heads):
    support, labels, query, ways = setting
    scores = score("transductive", setting, heads)
    for t in range(3):
        arrays = (support.support[t], labels[t], query.query[t], query.support[t])
        expected = refinement_twin(*(a.double().numpy() for a in arrays), ways)
        np.testing.assert_allclose(scores[t], expected, atol=1e-4)


def clusters(shots, balanced, separation):
    """200 tasks of Gaussian clusters, 5 ways and 75 queries, as representations of unit length."""
    labels = equal_shots(200, 5, shots)
    truth = equal_shots(200, 5, 15)
    if not balanced:
        random = np.random.default_rng(0)
        shares = random.dirichlet(np.ones(5), 200)
        truth = torch.from_numpy(np.stack([random.choice(5, 75, p=share) for share in shares]))
    generator = torch.Generator().manual_seed(1)
    centres = separation * torch.randn(200, 5, 64, generator=generator)

    def sample(y):
        noise = torch.randn(*y.shape, 64, generator=generator)
        z = F.normalize(centres.gather(1, y[..., None].expand(-1, -1, 64)) + noise, dim=2)
        return Embeddings(z, z, z)

    return (sample(labels), labels, sample(truth), 5, None), truth


def accuracy(name, tasks, truth):
    return 100 * (RULES[name]()(*tasks).argmax(dim=2) == truth).float().mean().item()


@pytest.mark.parametrize(("shots", "separation", "gain"), [(1, 0.3, 4), (1, 0.6, 10), (5, 0.3, 4)])
def test_transductive_gains_on_balanced_queries(shots, separation, gain):
    tasks, truth = clusters(shots, True, separation)
    assert accuracy("transductive", tasks, truth) > accuracy("prototype", tasks, truth) + gain


@pytest.mark.parametrize("shots", [1, 5])
@pytest.mark.parametrize(("separation", "loss"), [(0.15, 1.0), (0.3, 0.0), (0.6, 0.0), (1.0, 0.0)])
def test_transductive_does_no_harm_when_classes_are_unbalanced(shots, separation, loss):
    # Only where classes hardly differ, and a quarter of the queries is right, does it cost a bit.
    tasks, truth = clusters(shots, False, separation)
    assert accuracy("transductive", tasks, truth) >= accuracy("prototype", tasks, truth) - loss
