"""What every rule promises, whatever it does inside."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

import psco
from psco.evaluation.rules import RULES, Embeddings, Heads
from psco.evaluation.rules.adapt import adapt_one_by_one
from psco.evaluation.rules.adapt_together import adapt_together, are_usual

WIDTH, D, WAYS = 24, 8, 4
# Those that train a whole network take pictures, not points: tests/test_finetune.py.
NAMES = [name for name in RULES if not getattr(RULES[name], "needs_pixels", False)]


@pytest.fixture
def heads() -> Heads:
    torch.manual_seed(0)
    g, h = psco.projector(WIDTH, hidden=32, out=D), psco.predictor(D, hidden=32)
    for _ in range(20):  # running statistics as after training
        h(g(torch.randn(64, WIDTH)))
    return Heads(g.eval(), h.eval(), temperature=0.5)


def clusters(heads: Heads, labels: torch.Tensor, seed: int, noise: float = 0.2) -> Embeddings:
    """Give points (T, S) around well separated centres, the same for every seed."""
    centres = 3 * torch.eye(WAYS, WIDTH)
    generator = torch.Generator().manual_seed(seed)
    x = centres[labels] + noise * torch.randn(*labels.shape, WIDTH, generator=generator)
    with torch.no_grad():
        z = heads.projector(x.flatten(0, 1)).view(*labels.shape, D)
        q = heads.predictor(z.flatten(0, 1)).view(*labels.shape, D)
    return Embeddings(x, F.normalize(z, dim=-1), F.normalize(q, dim=-1))


SUPPORTS = {
    "one shot": torch.arange(WAYS).expand(3, -1),
    "five shots": torch.arange(WAYS).repeat_interleave(5).expand(3, -1),
    "unequal shots": torch.tensor([0, 0, 0, 1, 2, 2, 3]).expand(3, -1),
}


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("labels", SUPPORTS.values(), ids=SUPPORTS)
def test_every_rule_scores_every_query_for_every_class_with_finite_numbers(name, labels, heads):
    asked = torch.arange(WAYS).repeat_interleave(6).expand(3, -1)
    support, query = clusters(heads, labels, 1), clusters(heads, asked, 2)
    scores = RULES[name]()(support, labels, query, WAYS, heads)
    assert scores.shape == (3, 24, WAYS)
    assert scores.isfinite().all()
    if name not in ("prototype", "adapt", "transductive"):  # those depend on untrained heads
        assert (scores.argmax(dim=2) == asked).float().mean() > 0.95


@pytest.mark.parametrize("name", [name for name in NAMES if not RULES[name].transductive])
def test_inductive_rules_do_not_care_how_queries_are_ordered_or_split(name, heads):
    labels = SUPPORTS["five shots"]
    asked = torch.arange(WAYS).repeat_interleave(6).expand(3, -1)
    support, query = clusters(heads, labels, 1), clusters(heads, asked, 2)
    rule = RULES[name]()
    together = rule(support, labels, query, WAYS, heads)
    order = torch.randperm(24, generator=torch.Generator().manual_seed(3))

    def some(index: torch.Tensor) -> Embeddings:
        return Embeddings(query.features[:, index], query.support[:, index], query.query[:, index])

    permuted = rule(support, labels, some(order), WAYS, heads)
    torch.testing.assert_close(permuted, together[:, order], rtol=1e-3, atol=1e-4)
    alone = rule(support, labels, some(torch.tensor([5])), WAYS, heads)
    torch.testing.assert_close(alone, together[:, 5:6], rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("name", NAMES)
def test_the_tasks_of_a_batch_do_not_influence_each_other(name, heads):
    labels = SUPPORTS["unequal shots"]
    asked = torch.arange(WAYS).repeat_interleave(6).expand(3, -1)
    support, query = clusters(heads, labels, 1), clusters(heads, asked, 2)
    rule = RULES[name]()
    together = rule(support, labels, query, WAYS, heads)
    first = torch.tensor([0])
    alone = rule(support[first], labels[:1], query[first], WAYS, heads)
    torch.testing.assert_close(alone, together[:1], rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("labels", SUPPORTS.values(), ids=SUPPORTS)
def test_heads_adapted_together_are_those_adapted_one_by_one(labels, heads):
    x = clusters(heads, labels, 1, noise=1.0).features.double()
    xq = clusters(heads, labels, 2, noise=1.0).features.double()
    exact = Heads(heads.projector.double(), heads.predictor.double(), heads.temperature)
    assert are_usual(exact)
    fast = adapt_together(x, labels, xq, exact, 20)
    slow = adapt_one_by_one(x, labels, xq, exact, 20)
    for ours, theirs in zip(fast, slow, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-6, atol=1e-6)


def test_adaptation_needs_heads_and_leaves_them_as_they_are(heads):
    labels = SUPPORTS["five shots"]
    points = clusters(heads, labels, 1)
    before = [p.clone() for p in heads.projector.state_dict().values()]
    RULES["adapt"](steps=3)(points, labels, points, WAYS, heads)
    after = heads.projector.state_dict().values()
    assert all(torch.equal(a, b) for a, b in zip(before, after, strict=True))
    with pytest.raises(psco.InputError, match="needs the heads of a network"):
        RULES["adapt"]()(points, labels, points, WAYS, None)
