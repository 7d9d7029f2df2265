"""The transductive rule against loops, and its gain on balanced and unbalanced queries."""

from __future__ import annotations

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from rule_tasks import equal_shots, part, score

from psco.evaluation.rules import RULES, Embeddings


@pytest.mark.parametrize("setting", ["four"], indirect=True)
def test_transductive_depends_on_the_other_queries_but_not_on_their_order(setting, heads):
    found = {name for name in RULES if RULES[name]().transductive}
    assert found == {"transductive", "gmvae", "svebm"}
    support, labels, query, ways = setting
    rule = RULES["transductive"]()
    together = score(rule, *setting, heads)
    order = torch.randperm(15, generator=torch.Generator().manual_seed(1))
    shuffled = score(rule, support, labels, part(query, order), ways, heads)
    torch.testing.assert_close(shuffled, together[:, order])
    few = score(rule, support, labels, part(query, slice(4)), ways, heads)
    assert not torch.allclose(few, together[:, :4], atol=1e-3)


def assign(logits):
    """Assign queries to classes of estimated size, normalising rows and columns in turn."""
    P = np.exp(logits)
    size = (P / P.sum(axis=1, keepdims=True)).sum(axis=0) + 1
    size = size / size.sum() * len(logits)
    for _ in range(5):
        P /= P.sum(axis=1, keepdims=True)
        P *= size / P.sum(axis=0)
    return P / P.sum(axis=1, keepdims=True)


def refine(s, y, query, keys, ways):
    sums = np.stack([s[y == n].sum(axis=0) for n in range(ways)])
    c = sums / np.linalg.norm(sums, axis=1, keepdims=True)
    for _ in range(5):
        assigned = assign(query @ c.T / 0.1)
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


def test_transductive_equals_a_loop_over_tasks_classes_and_queries(setting, heads):
    support, labels, query, ways = setting
    scores = score(RULES["transductive"](), *setting, heads)
    for t in range(3):
        arrays = (support.support[t], labels[t], query.query[t], query.support[t])
        expected = refine(*(a.double().numpy() for a in arrays), ways)
        np.testing.assert_allclose(scores[t], expected, atol=1e-4)


def clusters(shots, balanced, separation):
    """200 tasks of Gaussian clusters, 5 ways and 75 queries, embedded with unit length."""
    labels = equal_shots(200, 5, shots)
    truth = equal_shots(200, 5, 15)
    if not balanced:
        random = np.random.default_rng(0)
        fractions = random.dirichlet(np.ones(5), 200)
        truth = torch.from_numpy(np.stack([random.choice(5, 75, p=row) for row in fractions]))
    generator = torch.Generator().manual_seed(1)
    centres = separation * torch.randn(200, 5, 64, generator=generator)

    def sample(y):
        noise = torch.randn(*y.shape, 64, generator=generator)
        z = F.normalize(centres.gather(1, y[..., None].expand(-1, -1, 64)) + noise, dim=2)
        return Embeddings(z, z, z)

    return (sample(labels), labels, sample(truth), 5, None), truth


def accuracy(name, tasks, truth):
    return 100 * (score(RULES[name](), *tasks).argmax(dim=2) == truth).float().mean().item()


@pytest.mark.parametrize(("shots", "separation", "gain"), [(1, 0.3, 4), (1, 0.6, 10), (5, 0.3, 4)])
def test_transductive_gains_on_balanced_queries(shots, separation, gain):
    tasks, truth = clusters(shots, True, separation)
    assert accuracy("transductive", tasks, truth) > accuracy("prototype", tasks, truth) + gain


@pytest.mark.parametrize("shots", [1, 5])
@pytest.mark.parametrize(("separation", "loss"), [(0.15, 1.0), (0.3, 0.0), (0.6, 0.0), (1.0, 0.0)])
def test_transductive_does_not_lose_on_unbalanced_queries(shots, separation, loss):
    # It may lose a little only if classes hardly differ and a quarter of the queries is correct.
    tasks, truth = clusters(shots, False, separation)
    assert accuracy("transductive", tasks, truth) >= accuracy("prototype", tasks, truth) - loss
