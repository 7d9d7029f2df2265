"""The adaptation of heads: many tasks at once against the paper's scheme task by task."""

from __future__ import annotations

import copy

import pytest
import torch
import torch.nn.functional as F
from rule_tasks import score
from torch import nn

from psco.errors import InputError
from psco.evaluation.rules import RULES, Embeddings, Heads
from psco.evaluation.rules.adapt_together import adapt_together, have_standard_form
from psco.evaluation.rules.prototype import adapt_one_by_one
from psco.networks import predictor, projector

WIDTH, HIDDEN, DIM = 12, 24, 8


def with_statistics(g: nn.Module, h: nn.Module, temperature: float = 0.5) -> Heads:
    """Heads in float64 whose running statistics and affine maps are not the initial ones."""
    generator = torch.Generator().manual_seed(5)
    g, h = g.double().train(), h.double().train()
    for module in (*g.modules(), *h.modules()):
        if isinstance(module, nn.BatchNorm1d) and module.affine:
            for parameter in (module.weight, module.bias):
                noise = torch.randn(parameter.shape, generator=generator, dtype=torch.float64)
                parameter.data += 0.2 * noise
    with torch.no_grad():
        for _ in range(10):
            h(g(torch.randn(50, WIDTH, generator=generator, dtype=torch.float64) + 1))
    return Heads(g.eval(), h.eval(), temperature)


def standard_heads(temperature: float = 0.5) -> Heads:
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return with_statistics(projector(WIDTH, HIDDEN, DIM), predictor(DIM, HIDDEN), temperature)


def tasks(labels, heads, queries=4, seed=1):
    """Return Gaussian clusters for labels (T, S); the rule reads only the features."""
    generator = torch.Generator().manual_seed(seed)
    ways = int(labels.max()) + 1
    truth = torch.arange(ways).repeat_interleave(queries).expand(len(labels), -1)
    centres = torch.randn(len(labels), ways, WIDTH, generator=generator, dtype=torch.float64)

    def sample(y):
        noise = torch.randn(*y.shape, WIDTH, generator=generator, dtype=torch.float64)
        x = centres.gather(1, y[..., None].expand(-1, -1, WIDTH)) + noise + 1
        with torch.no_grad():
            u = heads.projector(x.flatten(0, 1))
            v = heads.predictor(u)
        shape = (*y.shape, -1)
        return Embeddings(x, F.normalize(u, dim=1).view(shape), F.normalize(v, dim=1).view(shape))

    return (sample(labels), labels, sample(truth), ways), truth


def adapt_with_autograd(support, labels, query, ways, heads, steps=50):
    """Section 3.3 for one task after the other: copies of the modules, autograd, torch's SGD."""
    scores = []
    for x, y, xq in zip(support.features, labels, query.features, strict=True):
        g, h = copy.deepcopy(heads.projector).train(), copy.deepcopy(heads.predictor).train()
        optimiser = torch.optim.SGD(
            [*g.parameters(), *h.parameters()], lr=0.01, momentum=0.9, weight_decay=0.001
        )
        for _ in range(steps):
            u = g(x)
            z, q = F.normalize(u, dim=1), F.normalize(h(u), dim=1)
            loss = 0
            for s in range(len(y)):
                log_p = (q[s] @ z.T / heads.temperature).log_softmax(dim=0)
                loss = loss - log_p[y == y[s]].mean() / len(y)
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()
        g, h = g.eval(), h.eval()
        with torch.no_grad():
            z, q = F.normalize(g(x), dim=1), F.normalize(h(g(xq)), dim=1)
            c = torch.stack([F.normalize(z[y == n].sum(dim=0), dim=0) for n in range(ways)])
            scores.append(q @ c.T)
    return torch.stack(scores)


LABELS = {
    "one shot": torch.arange(3).expand(2, -1),
    "five shots": torch.arange(3).repeat_interleave(5).expand(2, -1),
    "unequal shots": torch.tensor([[0, 1, 1, 2, 2, 2], [2, 0, 1, 0, 0, 0]]),
    "more supports than features": torch.arange(2).repeat_interleave(9).expand(2, -1),
}


@pytest.mark.parametrize("shots", LABELS)
@pytest.mark.parametrize("temperature", [0.2, 1.0])
def test_all_tasks_at_once_equal_the_papers_scheme_task_by_task(shots, temperature):
    heads = standard_heads(temperature)
    assert have_standard_form(heads)
    setting, _ = tasks(LABELS[shots], heads)
    scores = score(RULES["adapt"](), *setting, heads)
    torch.testing.assert_close(scores, adapt_with_autograd(*setting, heads), rtol=0, atol=1e-9)


@pytest.mark.parametrize("steps", [1, 2, 7])
def test_fewer_steps_mix_old_and_new_running_statistics_as_torch_does(steps):
    heads = standard_heads()
    setting, _ = tasks(LABELS["five shots"], heads)
    scores = score(RULES["adapt"](steps=steps), *setting, heads)
    expected = adapt_with_autograd(*setting, heads, steps=steps)
    torch.testing.assert_close(scores, expected, rtol=0, atol=1e-10)


@pytest.mark.parametrize("make", [standard_heads, lambda: other_heads("no predictor")])
def test_no_steps_leave_the_prototype_rule(make):
    heads = make()
    setting, _ = tasks(LABELS["unequal shots"], heads)
    expected = score(RULES["prototype"](), *setting, heads)
    torch.testing.assert_close(score(RULES["adapt"](steps=0), *setting, heads), expected)


class Twice(nn.Module):
    """A custom head that uses a layer twice, which a list of its layers does not show."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(WIDTH, DIM), nn.Linear(DIM, DIM)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.second(torch.tanh(self.second(self.first(x))))


def other_heads(kind: str) -> Heads:
    with torch.random.fork_rng():
        torch.manual_seed(1)
        g, h = projector(WIDTH, HIDDEN, DIM), predictor(DIM, HIDDEN)
        if kind == "no predictor":
            h = nn.Identity()
        elif kind == "biases":
            h = nn.Sequential(nn.Linear(DIM, HIDDEN), *h[1:])
        elif kind == "other activation":
            g = nn.Sequential(*g[:2], nn.GELU(), *g[3:])
        elif kind == "no BatchNorm at the end":
            g = g[:4]
        elif kind == "BatchNorm that averages all":
            g[1] = nn.BatchNorm1d(HIDDEN, momentum=None)
        elif kind == "BatchNorm without memory":
            h[1] = nn.BatchNorm1d(HIDDEN, track_running_stats=False)
        else:
            g = Twice()
        return with_statistics(g, h)


KINDS = [
    "no predictor",
    "biases",
    "other activation",
    "no BatchNorm at the end",
    "BatchNorm that averages all",
    "BatchNorm without memory",
    "a custom module",
]


@pytest.mark.parametrize("kind", KINDS)
def test_heads_of_any_other_form_adapt_task_by_task(kind):
    heads = other_heads(kind)
    assert not have_standard_form(heads)
    setting, _ = tasks(LABELS["unequal shots"], heads)
    scores = score(RULES["adapt"](steps=6), *setting, heads)
    expected = adapt_with_autograd(*setting, heads, steps=6)
    torch.testing.assert_close(scores, expected, rtol=0, atol=1e-10)


@pytest.mark.parametrize("make", [standard_heads, lambda: other_heads("biases")])
def test_heads_that_are_frozen_and_in_inference_mode_adapt_too(make):
    heads = make()
    setting, _ = tasks(LABELS["five shots"], heads)
    expected = score(RULES["adapt"](steps=5), *setting, heads)
    for module in (heads.projector, heads.predictor):
        module.requires_grad_(False)
    with torch.inference_mode():
        support, labels, query, ways = setting
        again = Embeddings(support.features + 0, support.support, support.query)
        scores = score(RULES["adapt"](steps=5), again, labels + 0, query, ways, heads)
    torch.testing.assert_close(scores, expected)


def test_more_tasks_than_fit_at_once_get_the_same_scores():
    heads = standard_heads()
    (support, labels, query, ways), _ = tasks(torch.tensor([[0, 1, 1, 0, 2]]).expand(19, -1), heads)
    together = score(RULES["adapt"](steps=5), support, labels, query, ways, heads)
    for t in (0, 7, 8, 18):
        one = torch.tensor([t])
        alone = score(RULES["adapt"](steps=5), support[one], labels[one], query[one], ways, heads)
        torch.testing.assert_close(alone[0], together[t])


def test_predictions_in_single_precision_are_those_of_the_loop_and_better_than_before():
    with torch.random.fork_rng():
        torch.manual_seed(2)
        heads = with_statistics(projector(WIDTH, 256, 32), predictor(32, 256), 1.0)
    (support, labels, query, ways), truth = tasks(
        torch.arange(5).repeat_interleave(5).expand(8, -1), heads, queries=15
    )
    single = [
        Embeddings(p.features.float(), p.support.float(), p.query.float()) for p in (support, query)
    ]
    for module in (heads.projector, heads.predictor):
        module.float()
    setting = (single[0], labels, single[1], ways)
    scores = score(RULES["adapt"](), *setting, heads)
    expected = adapt_with_autograd(*setting, heads)
    torch.testing.assert_close(scores, expected, rtol=0, atol=2e-3)
    predicted = scores.argmax(dim=2)
    assert (predicted == expected.argmax(dim=2)).float().mean() > 0.995
    before = score(RULES["prototype"](), *setting, heads).argmax(dim=2)
    assert (predicted == truth).float().mean() > (before == truth).float().mean() + 0.05


def test_adapt_refuses_tasks_without_heads_parameters_or_a_second_support():
    heads = standard_heads()
    (support, labels, query, ways), _ = tasks(LABELS["five shots"], heads)
    adapt = RULES["adapt"]()
    with pytest.raises(InputError, match="rule 'adapt' needs the heads of a network"):
        score(adapt, support, labels, query, ways, None)
    with pytest.raises(InputError, match="needs heads with parameters"):
        score(adapt, support, labels, query, ways, Heads(nn.Identity(), nn.Identity()))
    with pytest.raises(InputError, match="temperature must be > 0, got 0"):
        score(adapt, support, labels, query, ways, Heads(heads.projector, heads.predictor, 0))
    single = Embeddings(support.features[:, :1], support.support[:, :1], support.query[:, :1])
    with pytest.raises(InputError, match="needs at least 2 supports"):
        score(adapt, single, labels[:, :1], query, 1, heads)


@pytest.mark.parametrize("shots", LABELS)
def test_heads_adapted_together_equal_those_adapted_one_by_one(shots):
    heads = standard_heads()
    (support, labels, query, _), _ = tasks(LABELS[shots], heads)
    fast = adapt_together(support.features, labels, query.features, heads, 20)
    slow = adapt_one_by_one(support.features, labels, query.features, heads, 20)
    for ours, theirs in zip(fast, slow, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-6, atol=1e-6)


def test_the_options_of_rules_are_read_from_their_signatures():
    assert RULES.options("adapt", {}) == {"steps": 50}
    assert RULES.options("knn", {"k": 3}) == {"k": 3}
    with pytest.raises(InputError, match="unknown option of rule 'adapt' 'step'"):
        RULES.options("adapt", {"step": 3})
