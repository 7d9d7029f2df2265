"""What every rule guarantees, whatever its algorithm."""

from __future__ import annotations

import pytest
import torch
from rule_tasks import INDUCTIVE, NAMES, draw, equal_shots, part, score

from psco.evaluation.rules import RULES


@pytest.mark.parametrize("name", NAMES)
def test_a_rule_returns_one_finite_score_for_each_query_and_class(name, setting, heads):
    scores = score(RULES[name](), *setting, heads)
    assert scores.shape == (3, 15, 3)
    assert scores.dtype == torch.float32
    assert scores.isfinite().all()


@pytest.mark.parametrize("name", NAMES)
def test_a_task_gets_the_same_scores_alone_and_among_others(name, setting, heads):
    support, labels, query, ways = setting
    together = score(RULES[name](), *setting, heads, first=5)
    for t in range(3):
        one = torch.tensor([t])
        task = support[one], labels[one], query[one], ways
        alone = score(RULES[name](), *task, heads, first=5 + t)
        torch.testing.assert_close(alone[0], together[t], rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("name", INDUCTIVE)
def test_an_inductive_rule_scores_a_query_independently_of_the_others(name, setting, heads):
    support, labels, query, ways = setting
    together = score(RULES[name](), *setting, heads)
    order = torch.randperm(15, generator=torch.Generator().manual_seed(1))
    shuffled = score(RULES[name](), support, labels, part(query, order), ways, heads)
    torch.testing.assert_close(shuffled, together[:, order], rtol=0, atol=1e-5)
    for one in range(0, 15, 7):
        alone = part(query, slice(one, one + 1))
        scores = score(RULES[name](), support, labels, alone, ways, heads)
        torch.testing.assert_close(scores, together[:, one : one + 1], rtol=0, atol=1e-5)


@pytest.mark.parametrize("name", NAMES)
def test_every_rule_classifies_well_separated_clusters(name, heads):
    setting = draw(equal_shots(20, 3, 5), truth := equal_shots(20, 3, 10), 3, heads, separation=3)
    # Untrained heads lose some of the information in the features.
    predicted = score(RULES[name](), *setting, heads).argmax(dim=2)
    assert (predicted == truth).float().mean() > 0.9


@pytest.mark.parametrize("name", NAMES)
def test_rules_work_in_inference_mode_and_do_not_change_the_heads(name, heads):
    before = [*heads.projector.state_dict().values(), *heads.predictor.state_dict().values()]
    before = [tensor.clone() for tensor in before]
    with torch.inference_mode():
        setting = draw(equal_shots(2, 3, 2), equal_shots(2, 3, 2), 3, heads)
        scores = score(RULES[name](), *setting, heads)
    assert not scores.requires_grad
    after = [*heads.projector.state_dict().values(), *heads.predictor.state_dict().values()]
    assert all(torch.equal(a, b) for a, b in zip(before, after, strict=True))
    assert not heads.projector.training
