"""MAML: gradients through the steps, batch statistics, its rule, and inner loops that diverge."""

from __future__ import annotations

import copy

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from steps import run_loss
from torch import Tensor, nn

import psco
from psco.errors import DivergedError, InputError, PscoError
from psco.evaluation.embed import Encoder
from psco.evaluation.rules import RULES, Embeddings, Heads, SupportSet
from psco.methods.maml import MAML
from psco.networks import Networks
from psco.ops.inner_loop import TaskNorm
from psco.recipes.recipe import load_recipe
from psco.report.compared import to_markdown

SHAPE = (1, 6, 6)
WIDTH = 3 * 3 * 3


def maml(activation: type[nn.Module] = nn.ReLU, **options: object) -> MAML:
    """Make a small MAML in double precision: a convolution, BatchNorm, pooling, a linear layer."""
    torch.manual_seed(0)
    f = nn.Sequential(
        nn.Conv2d(1, 3, 3, padding=1),
        nn.BatchNorm2d(3),
        activation(),
        nn.AvgPool2d(2),
        nn.Flatten(),
    )
    options = {"ways": 3, "shots": 2, "queries": 2, "tasks": 2, "inner_steps": 3, **options}
    method = MAML(Networks(f, nn.Linear(WIDTH, 4), None), inner_rate=0.3, **options).double()
    with torch.no_grad():  # a scale and a shift that do something
        f[1].weight.uniform_(0.5, 1.5)
        f[1].bias.uniform_(-0.5, 0.5)
    return method


def batch(method: MAML, seed: int = 1) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(method.episode.images, *SHAPE, generator=generator, dtype=torch.float64)


def normalise(x: Tensor, sample: Tensor, scale: Tensor, shift: Tensor) -> Tensor:
    mean = sample.mean(dim=(0, 2, 3), keepdim=True)
    variance = sample.var(dim=(0, 2, 3), correction=0, keepdim=True)
    x = (x - mean) / (variance + 1e-5).sqrt()
    return x * scale[:, None, None] + shift[:, None, None]


def forward(method: MAML, weights: list[Tensor], x: Tensor, sample: Tensor | None) -> Tensor:
    """Apply the network, written out; BatchNorm has the statistics of ``sample``, or of x."""
    kernel, offset, matrix, vector = weights
    norm, activation = method.backbone[1], method.backbone[2]
    maps = F.conv2d(x, kernel, offset, padding=1)
    seen = maps if sample is None else F.conv2d(sample, kernel, offset, padding=1)
    maps = activation(normalise(maps, seen, norm.weight, norm.bias))
    return F.linear(F.avg_pool2d(maps, 2).flatten(1), matrix, vector)


def adapted(method: MAML) -> list[nn.Parameter]:
    return [*method.backbone[0].parameters(), *method.classifier.parameters()]


def steps(method: MAML, support: Tensor, labels: Tensor, number: int, first_order: bool):
    """Take the inner steps of one task, one after the other, by torch.autograd."""
    weights: list[Tensor] = list(adapted(method))
    for _ in range(number):
        loss = method.episode.ways * F.cross_entropy(
            forward(method, weights, support, None), labels
        )
        gradients = torch.autograd.grad(loss, weights, create_graph=not first_order)
        weights = [w - method.inner_rate * g for w, g in zip(weights, gradients, strict=True)]
    return weights


def unrolled(method: MAML, x: Tensor, first_order: bool = False) -> Tensor:
    """Give MAML's loss as its paper writes it."""
    e, losses = method.episode, []
    for task in x.reshape(e.tasks, e.ways, e.shots + e.queries, *SHAPE):
        support, query = (p.flatten(0, 1) for p in (task[:, : e.shots], task[:, e.shots :]))
        y_s, y_q = (torch.arange(e.ways).repeat_interleave(k) for k in (e.shots, e.queries))
        weights = steps(method, support, y_s, method.inner_steps, first_order)
        sample = support if method.statistics == "support" else None
        losses.append(F.cross_entropy(forward(method, weights, query, sample), y_q))
    return torch.stack(losses).mean()


def gradient(method: MAML, loss: Tensor) -> Tensor:
    found = torch.autograd.grad(loss, list(method.parameters()))
    return torch.cat([part.flatten() for part in found])


@pytest.mark.parametrize("first_order", [False, True])
@pytest.mark.parametrize("statistics", ["support", "query"])
def test_the_gradient_is_that_of_the_unrolled_loss(statistics, first_order):
    method = maml(statistics=statistics, first_order=first_order)
    x = batch(method)
    ours, twin = run_loss(method, x, x)["total"], unrolled(method, x, first_order)
    assert ours.item() == pytest.approx(twin.item(), abs=1e-12)
    torch.testing.assert_close(gradient(method, ours), gradient(method, twin), atol=1e-8, rtol=1e-8)


def test_the_gradient_is_that_of_a_finite_difference():
    method = maml(nn.Softplus)
    x = batch(method)
    exact = gradient(method, run_loss(method, x, x)["total"])
    torch.manual_seed(5)
    direction = [torch.randn_like(p) for p in method.parameters()]
    values = []
    for sign in (1, -1):
        moved = copy.deepcopy(method)
        with torch.no_grad():
            for p, d in zip(moved.parameters(), direction, strict=True):
                p += sign * 1e-5 * d
        values.append(run_loss(moved, x, x)["total"].item())
    along = exact @ torch.cat([d.flatten() for d in direction])
    assert (values[0] - values[1]) / 2e-5 == pytest.approx(along.item(), rel=1e-6)


def test_the_first_order_gradient_is_another_one_of_the_same_loss():
    exact, rough = maml(), maml(first_order=True)
    x = batch(exact)
    losses = [run_loss(method, x, x)["total"] for method in (exact, rough)]
    assert losses[0].item() == losses[1].item()
    gradients = [gradient(m, loss) for m, loss in zip((exact, rough), losses, strict=True)]
    assert (gradients[0] - gradients[1]).abs().max() > 1e-2


def test_tasks_side_by_side_are_tasks_one_after_the_other():
    both, single = maml(), maml(tasks=1)
    x = batch(both)
    together = run_loss(both, x, x)
    alone = [run_loss(single, part, part) for part in x.chunk(2)]
    for name in ("total", "accuracy"):
        mean = sum(losses[name].item() for losses in alone) / 2
        assert together[name].item() == pytest.approx(mean, abs=1e-12)


# ------------------------------------------------------------------------------------------ rule


def points(x: Tensor) -> Embeddings:  # (T, n, C, H, W)
    pixels = x.flatten(2)
    return Embeddings(pixels, pixels[..., :0], pixels[..., :0])


def task(ways: int = 3, tasks: int = 2) -> tuple[Tensor, Tensor, Tensor]:
    """Give supports (T, 2N, ...), their labels, and 5 queries of each task."""
    generator = torch.Generator().manual_seed(4)
    x = torch.randn(tasks, 2 * ways + 5, *SHAPE, generator=generator, dtype=torch.float64)
    labels = torch.arange(ways).repeat(2).expand(tasks, -1)
    return x[:, : 2 * ways], labels, x[:, 2 * ways :]


def answer(method: MAML, rule: object, ways: int = 3, pick: object = slice(None)) -> Tensor:
    support, labels, query = task(ways)
    heads = Heads(method.projector, method.predictor, 1.0, method, SHAPE)
    return rule(SupportSet(points(support), labels, ways, heads), points(query[:, pick]))  # type: ignore[operator]


def test_the_rule_takes_the_steps_and_asks_the_network():
    method = maml()
    rule = RULES["maml"](steps=4, rate=method.inner_rate)
    support, labels, query = task()
    for t, logits in enumerate(answer(method, rule)):
        weights = steps(method, support[t], labels[t], 4, first_order=True)
        torch.testing.assert_close(logits, forward(method, weights, query[t], support[t]))


@pytest.mark.parametrize("name", ["maml", "scratch"])
def test_with_statistics_of_the_supports_a_prediction_knows_no_other_query(name):
    rule = RULES[name](steps=3, statistics="support")
    method = maml()
    full = answer(method, rule)
    order = torch.tensor([3, 1, 4, 0, 2])
    assert not rule.transductive
    torch.testing.assert_close(answer(method, rule, pick=order), full[:, order])
    for one in range(5):
        alone = answer(method, rule, pick=slice(one, one + 1))
        torch.testing.assert_close(alone, full[:, one : one + 1])


@pytest.mark.parametrize("name", ["maml", "scratch"])
def test_with_statistics_of_the_queries_it_does_and_says_so(name):
    rule = RULES[name](steps=3, statistics="query")
    method = maml()
    full, part = answer(method, rule), answer(method, rule, pick=slice(2))
    assert rule.transductive
    assert (full[:, :2] - part).abs().max() > 1e-3


def test_a_task_of_fewer_ways_uses_the_first_outputs_only():
    method = maml(ways=5)
    rule = RULES["maml"](steps=3, rate=0.3)
    before = answer(method, rule)
    assert before.shape == (2, 5, 3)
    with torch.no_grad():
        method.classifier.weight[3:] = 100
        method.classifier.bias[3:] = 100
    torch.testing.assert_close(answer(method, rule), before)


def test_training_from_scratch_takes_the_rate_and_steps_of_its_recipe(few_glyphs):
    changes = ["method={name: scratch, rate: 0.02, steps: 3}", "backbone.width=4"]
    encoder = Encoder.untrained(load_recipe("glyphs", changes))
    report = psco.evaluate(encoder, few_glyphs, tasks=2, queries=2)
    assert (report.options["rate"], report.options["steps"]) == (0.02, 3)
    report = psco.evaluate(encoder, few_glyphs, tasks=2, queries=2, options={"rate": 0.5})
    assert report.options["rate"] == 0.5


def test_training_from_scratch_forgets_what_the_network_has_learnt():
    method, other = maml(), maml()
    with torch.no_grad():
        for parameter in other.parameters():
            parameter += 1
    rule = RULES["scratch"](steps=5)
    torch.testing.assert_close(answer(method, rule), answer(other, rule))
    assert not torch.equal(answer(method, rule), answer(method, RULES["scratch"](steps=5, seed=1)))


def test_more_ways_than_it_was_trained_for_are_refused():
    with pytest.raises(InputError, match="trained for 3 ways and cannot do 4"):
        answer(maml(), RULES["maml"](), ways=4)


def test_the_rule_wants_a_network_of_maml():
    method = psco.METHODS["random"](Networks(nn.Flatten()))
    with pytest.raises(InputError, match="rule 'maml' needs a run of the method 'maml'"):
        answer(method, RULES["maml"]())


# -------------------------------------------------------------------------------- runs and reports


SMALL = [
    "image={size: 16, source_size: 16, channels: 1, mean: [0.5], std: [0.25]}",
    "backbone={name: conv4, width: 8}",
    "heads.hidden=16",
    "train.batch_size=48",
    "train.warmup_steps=0",
    "train.purity=false",
    "method.ways=4",
    "method.inner_steps=2",
]


@pytest.fixture(scope="module")
def images() -> psco.ImageSet:
    pixels = np.random.default_rng(0).integers(0, 256, (90, 16, 16, 1), dtype=np.uint8)
    return psco.ImageSet(pixels, np.arange(90) // 10, tuple("abcdefghi"), "noise", "test")


def test_the_statistics_are_named_in_every_report(images):
    for statistics, transductive in {"support": False, "query": True}.items():
        changes = [*SMALL, f"method.statistics={statistics}", "method.test_steps=3"]
        encoder = Encoder.untrained(load_recipe("glyphs", ["method.name=maml", *changes]))
        report = psco.evaluate(encoder, images, ways=4, queries=3, tasks=3, rule="maml")
        assert report.transductive is transductive
        assert report.options == {"steps": 3, "rate": 0.004, "statistics": statistics}
        table = to_markdown(psco.compare([encoder], images, [(4, 1)], queries=3, tasks=3))
        assert ("| maml, transductive |" in table) is transductive
        assert ("| maml |" in table) is not transductive


def test_its_network_keeps_no_statistics_and_its_features_are_not_for_use(images):
    encoder = Encoder.untrained(load_recipe("glyphs", ["method.name=maml", *SMALL]))
    layers = list(encoder.method.modules())
    assert any(isinstance(layer, TaskNorm) for layer in layers)
    assert not any(isinstance(layer, nn.BatchNorm2d) for layer in layers)
    with pytest.raises(InputError, match="before it adapts to a task; use the rule 'maml'"):
        encoder.embed(images.images)


def test_an_inner_loop_that_diverges_stops_the_run_with_its_last_checkpoint(images, tmp_path):
    changes = [*SMALL, "train.learning_rate=1e30"]
    with pytest.raises(PscoError) as caught:
        psco.pretrain(
            images,
            out=tmp_path / "run",
            recipe="glyphs",
            method="maml",
            steps=5,
            overrides=changes,
            checkpoint_steps=1,
            progress=False,
        )
    message = str(caught.value)
    assert message.startswith("step 1: the inner loop diverges: task 1 of 2 after 0 of 2 steps")
    assert "method.inner_rate 0.004; try a lower one" in message
    assert message.endswith(f"last good checkpoint is {tmp_path / 'run' / 'resume.pt'}, step 1")
    assert psco.load(tmp_path / "run").steps == 1


def test_a_test_task_that_diverges_is_an_error_not_a_number(images):
    encoder = Encoder.untrained(load_recipe("glyphs", ["method.name=maml", *SMALL]))
    with pytest.raises(DivergedError, match="diverges after 1 of 5 steps with rate 1e\\+38"):
        psco.evaluate(
            encoder,
            images,
            ways=4,
            queries=3,
            tasks=2,
            rule="maml",
            options={"rate": 1e38, "steps": 5},
        )


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"inner_steps": 0}, "inner_steps must be > 0, got 0"),
        ({"tasks": 0}, "tasks must be at least 1, got 0"),
        ({"ways": 1}, "ways must be at least 2, got 1"),
    ],
)
def test_settings_that_cannot_be_are_named(options, message):
    with pytest.raises(InputError, match=message):
        maml(**options)
