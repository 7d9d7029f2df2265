"""Rules that are fitted once score queries as they do when called on a whole task."""

from __future__ import annotations

import pickle

import pytest
import torch

from psco.evaluation.rules import RULES, Embeddings, SupportSet, fit_rule
from psco.evaluation.rules.rule import FittableRule

NAMES = sorted(
    name
    for name in RULES
    if name != "adapt"
    and not RULES[name]().transductive
    and not getattr(RULES[name](), "needs_pixels", False)
)


def embeddings(tasks: int, number: int, seed: int) -> Embeddings:
    x = torch.randn(tasks, number, 6, generator=torch.Generator().manual_seed(seed))
    unit = torch.nn.functional.normalize(x, dim=-1)
    return Embeddings(x, unit, unit)


@pytest.mark.parametrize("name", NAMES)
def test_a_fitted_rule_gives_each_query_the_score_of_the_whole_task(name):
    rule = RULES[name]()
    query = embeddings(2, 5, 1)
    labels = torch.arange(9).remainder(3).expand(2, -1)
    support = SupportSet(embeddings(2, 9, 0), labels, 3)
    whole = rule(support, query)
    score = pickle.loads(pickle.dumps(fit_rule(rule, support)))
    parts = [
        score(Embeddings(query.features[:, [i]], query.support[:, [i]], query.query[:, [i]]))
        for i in range(5)
    ]
    torch.testing.assert_close(torch.cat(parts, dim=1), whole, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("name", ["linear", "ridge", "logistic"])
def test_rules_that_train_on_the_supports_can_be_fitted(name):
    assert isinstance(RULES[name](), FittableRule)
