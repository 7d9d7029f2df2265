"""Options that depart from the paper: each against a slow twin, and all of them off by default."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from safetensors.torch import load_file
from steps import run_loss
from torch import nn

import psco
from psco.methods.moco import MoCo
from psco.methods.momentum import FillingQueue, MomentumQueue, momentum_at
from psco.methods.psco_extended import ExtendedPsCo, mutual_shots
from psco.networks import Networks
from psco.recipes.build import build_method, build_views
from psco.training.averaging import WeightAverage, recalibrate_batchnorm
from psco.training.checkpoint import load_resume
from psco.training.feed import Feed
from psco.training.loop import Loop

OFF = {
    "momentum_end": None,
    "filled_queue": False,
    "own_view": False,
    "reciprocal": None,
    "spare_shots": False,
    "mixed_negatives": 0,
}


def make(**options: object) -> ExtendedPsCo:
    torch.manual_seed(0)
    return ExtendedPsCo(
        Networks(
            psco.conv4(1, 16, width=8),
            psco.projector(8, hidden=24, out=12),
            psco.predictor(12, hidden=24),
        ),
        **{"queue_size": 40, "shots": 3, "momentum": 1.0, **options},
    )


def units(rows: int, dim: int, seed: int) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    return nn.functional.normalize(torch.randn(rows, dim, generator=generator), dim=1)


@pytest.fixture
def views() -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(1)
    one = torch.randn(10, 1, 16, 16, generator=generator)
    return one, one + 0.3 * torch.randn(10, 1, 16, 16, generator=generator)


@pytest.mark.parametrize("name", ["omniglot", "miniimagenet", "imagenet"])
def test_all_options_are_off_in_the_recipes_of_the_paper(name):
    recipe = psco.load_recipe(name)
    assert recipe.method.options.items() >= OFF.items()
    train, views = recipe.train, recipe.views
    assert (train.average_last, train.freeze_blocks, train.small_size) == (0, 0, None)
    assert (train.optimizer, views.count, views.shared_flip) == ("sgd", 2, 0)


# ----------------------------------------------------------------------------- momentum schedule


def test_the_momentum_goes_from_its_start_to_its_end_by_half_a_cosine():
    assert momentum_at(0.7, 0.99, None) == 0.99
    for step in range(11):
        byol = 1 - (1 - 0.96) * (math.cos(math.pi * step / 10) + 1) / 2
        assert momentum_at(step / 10, 0.96, 1.0) == pytest.approx(byol, abs=1e-15)
    assert momentum_at(0.0, 0.9, 0.5) == pytest.approx(0.9)
    assert momentum_at(1.0, 0.9, 0.5) == pytest.approx(0.5)


@pytest.mark.parametrize("name", ["psco", "moco", "byol"])
def test_the_average_follows_the_schedule_over_the_run(name, views):
    options = {"momentum": 0.2, "momentum_end": 1.0}
    for progress, m in {0.0: 0.2, 0.5: 0.6, 1.0: 1.0}.items():
        torch.manual_seed(0)
        method = psco.METHODS[name](
            Networks(psco.conv4(1, 16, width=8), psco.projector(8, 24, 12), psco.predictor(12, 24)),
            **options,
        )
        twin = next(method.ema.parameters())
        before = twin.clone()
        with torch.no_grad():
            next(method.backbone.parameters()).add_(1.0)
        run_loss(method, *views, progress=progress)
        torch.testing.assert_close(twin, before + (1 - m))


def make_loop(pictures, folder, overrides) -> Loop:
    recipe = psco.load_recipe("glyphs", overrides)
    torch.manual_seed(0)
    feed = Feed(psco.load_dataset(pictures), 16, 0)
    return Loop(build_method(recipe), build_views(recipe), feed, recipe, folder)


def test_every_batch_says_how_far_the_run_is(pictures, tmp_path, tiny, monkeypatch):
    seen, loss = [], psco.PsCo.loss
    monkeypatch.setattr(psco.PsCo, "loss", lambda m, b: seen.append(b.progress) or loss(m, b))
    loop = make_loop(pictures, tmp_path, tiny)
    batches = loop.feed.batches(0)
    for _ in range(12):
        loop._take_step(batches)
    assert seen == [step / 12 for step in range(12)]


# --------------------------------------------------------------------------------- filling queue


@given(st.integers(1, 9), st.lists(st.integers(0, 20), max_size=6), st.integers(0, 9))
def test_a_filling_queue_has_the_last_keys_and_no_random_ones_unless_it_must(size, batches, least):
    least = min(least, size)
    queue, seen = FillingQueue(MomentumQueue(size, 2), least), []
    random = queue.keys.clone()
    for batch in batches:
        keys = torch.arange(2 * len(seen), 2 * (len(seen) + batch)).view(batch, 2).float()
        queue.push(keys)
        seen += [tuple(key) for key in keys.tolist()]
    filled = min(size, len(seen))
    assert {tuple(key) for key in queue.live()[:filled].tolist()} == set(seen[-size:])
    assert len(queue.live()) == max(filled, least)
    if not seen:
        assert torch.equal(queue.live(), random[:least])


def test_a_filling_queue_survives_a_state_dict():
    one, other = (FillingQueue(MomentumQueue(10, 3)) for _ in range(2))
    one.push(torch.randn(7, 3))
    other.load_state_dict(one.state_dict())
    assert torch.equal(one.live(), other.live())
    assert len(other.live()) == 7


def test_psco_with_a_filling_queue_is_psco_with_a_queue_of_that_length(views):
    filling, short = make(filled_queue=True), make(queue_size=10)
    keys = units(10, 12, seed=2)
    for model in (filling, short):
        model.queue.push(keys)
    one, other = run_loss(filling, *views), run_loss(short, *views)
    assert one.keys() == other.keys()
    for name in one:
        torch.testing.assert_close(one[name], other[name])


def test_the_first_step_of_a_filling_queue_has_just_as_many_random_keys_as_shots(views):
    model = make(filled_queue=True)
    report = run_loss(model, *views)
    assert all(value.isfinite() for value in report.values())
    assert report["overlap"] == pytest.approx(1 - 3 / 30)
    assert len(model.queue.live()) == 10


def test_moco_with_a_filling_queue_contrasts_with_earlier_keys_only(views):
    torch.manual_seed(0)
    networks = psco.conv4(1, 16, width=8), psco.projector(8, 24, 12), None
    model = MoCo(Networks(*networks), queue_size=40, momentum=1.0, filled_queue=True)
    assert run_loss(model, *views)["total"].item() == pytest.approx(0, abs=1e-6)
    q = nn.functional.normalize(model.projector(model.backbone(views[0])), dim=1)
    keys = model.queue.live().clone()
    k = model.ema.key(views[1])
    expected = psco.moco_loss(q, k, keys, 0.2)
    torch.testing.assert_close(run_loss(model, *views)["total"], expected)


# ------------------------------------------------------------------------------- the pseudo-task


def task_of(model: psco.PsCo, views) -> tuple[torch.Tensor, ...]:
    """Return q, z, the queue and the shots that the model is going to use."""
    with torch.no_grad():
        q = model.embed_query(views[0])
        z = model.ema.key(views[1])
    sim = z @ model.queue.keys.T
    plan = psco.sinkhorn(sim) if model.sinkhorn else sim
    return q, z, model.queue.keys, psco.select_shots(plan, model.shots)


def slow_loss(q, positives: list[list[torch.Tensor]], temperature: float) -> float:
    """Contrast every query with its own keys among those of all: Eq. (5), in plain loops."""
    total = 0.0
    for i in range(len(q)):
        scores = [[float(q[i] @ key) / temperature for key in keys] for keys in positives]
        denominator = sum(math.exp(score) for row in scores for score in row)
        total += sum(math.log(denominator) - own for own in scores[i]) / len(scores[i])
    return total / len(q)


def test_the_own_view_is_one_more_shot_of_its_pseudo_label(views):
    model = make(own_view=True, temperature=0.5)
    q, z, keys, shots = task_of(model, views)
    positives = [[*(keys[j] for j in shots[i]), z[i]] for i in range(len(q))]
    assert float(run_loss(model, *views)["psco"]) == pytest.approx(slow_loss(q, positives, 0.5))


@given(st.integers(1, 6), st.integers(1, 4), st.integers(1, 7), st.integers(0, 99))
def test_mutual_shots_equal_a_loop(count, k, nearest, seed):
    z, s = units(count, 3, seed), units(count * k, 3, seed + 100)
    mutual = mutual_shots(z, s, nearest)
    for i in range(count):
        for place in range(k):
            near = sorted(range(count), key=lambda n: -float(s[i * k + place] @ z[n]))
            assert bool(mutual[i, place]) == (i in near[:nearest])


@pytest.mark.parametrize("own_view", [False, True])
@pytest.mark.parametrize("nearest", [1, 2, 10])
def test_shots_that_are_not_mutual_leave_the_pseudo_task(own_view, nearest, views):
    # Few keys and no Sinkhorn: shots are shared, and some queries have no mutual one.
    model = make(reciprocal=nearest, own_view=own_view, queue_size=5, sinkhorn=False)
    q, z, keys, shots = task_of(model, views)
    mutual = mutual_shots(z, keys[shots.flatten()], nearest)
    positives, counted = [], 0
    for i in range(len(q)):
        kept = [keys[j] for j, good in zip(shots[i], mutual[i], strict=True) if good]
        if not kept and not own_view:
            kept = [keys[shots[i, 0]]]
        counted += len(kept)
        positives.append([*kept, z[i]] if own_view else kept)
    report = run_loss(model, *views)
    assert float(report["psco"]) == pytest.approx(slow_loss(q, positives, 1.0), rel=1e-5)
    assert float(report["mutual"]) == pytest.approx(counted / shots.numel())
    assert (report["mutual"] == 1) == (nearest == 10)
    assert bool(mutual.any(dim=1).all()) == (nearest == 10)


def test_a_filter_that_lets_all_pass_changes_nothing(views):
    assert run_loss(make(reciprocal=10), *views)["total"] == run_loss(make(), *views)["total"]


def test_purity_is_that_of_the_shots_that_count(views):
    model = make(reciprocal=1)
    labels = torch.arange(10) % 2
    model.queue.labels = torch.arange(40) % 2
    _, z, keys, shots = task_of(model, views)
    mutual = mutual_shots(z, keys[shots.flatten()], 1)
    mutual[:, 0] |= ~mutual.any(dim=1)
    right = [
        bool(model.queue.labels[shots[i, k]] == labels[i])
        for i in range(10)
        for k in range(3)
        if mutual[i, k]
    ]
    purity = float(run_loss(model, *views, labels)["purity"])
    assert purity == pytest.approx(sum(right) / len(right))


def test_spared_shots_are_no_negatives_of_their_query(views):
    model = make(spare_shots=True)
    q, z, keys, shots = task_of(model, views)
    total = 0.0
    for i in range(len(q)):
        negatives = [keys[j] for j in range(len(keys)) if j not in shots[i].tolist()]
        scores = [math.exp(float(q[i] @ key) / 0.2) for key in [z[i], *negatives]]
        total -= math.log(scores[0] / sum(scores))
    report = run_loss(model, *views)
    assert float(report["moco"]) == pytest.approx(total / len(q), rel=1e-5)
    assert float(report["psco"]) == pytest.approx(float(run_loss(make(), *views)["psco"]))


@pytest.mark.parametrize(
    "option",
    [
        {"momentum_end": 1.0},
        {"filled_queue": True},
        {"own_view": True},
        {"reciprocal": 1},
        {"reciprocal": 1, "own_view": True},
        {"spare_shots": True},
        {"spare_shots": True, "filled_queue": True, "batch_negatives": True},
    ],
    ids=str,
)
def test_every_option_trains_and_gives_finite_gradients(option, views):
    model = make(**option, momentum=0.9)
    optimizer = torch.optim.SGD([p for p in model.parameters() if p.requires_grad], lr=0.1)
    losses = []
    for _ in range(16):
        loss = run_loss(model, *views)["total"]
        optimizer.zero_grad()
        loss.backward()
        assert all(p.grad.isfinite().all() for p in model.parameters() if p.grad is not None)
        optimizer.step()
        losses.append(loss.item())
    # A queue that fills makes the task harder at first.
    assert losses[-1] < losses[5]


def test_half_precision_gives_a_finite_loss_with_all_options(views):
    options = {"own_view": True, "reciprocal": 1, "spare_shots": True, "filled_queue": True}
    model = make(**options)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        for _ in range(3):
            report = run_loss(model, *views)
            report["total"].backward()
    assert report["total"].isfinite()
    assert all(p.grad.isfinite().all() for p in model.parameters() if p.grad is not None)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"momentum_end": 1.1}, "momentum_end must be between 0 and 1 or null, got 1.1"),
        ({"reciprocal": 0}, "reciprocal must be at least 1 or null, got 0"),
        ({"spare_shots": True, "auxiliary": "byol"}, "requires auxiliary='moco', got 'byol'"),
    ],
)
def test_impossible_options_are_refused_with_their_value(options, message):
    with pytest.raises(psco.InputError, match=message):
        make(**options)


# ------------------------------------------------------------------------------- mean of weights


def test_the_average_is_the_plain_mean_of_what_was_added():
    method = make()
    average = WeightAverage(method)
    seen = []
    for step in range(5):
        with torch.no_grad():
            for parameter in method.parameters():
                parameter.add_(torch.randn_like(parameter))
        if step >= 2:
            average.add(method)
            seen.append([p.detach().clone() for p in method.parameters()])
    means = [torch.stack(values).mean(dim=0) for values in zip(*seen, strict=True)]
    for mine, mean in zip(average.method.parameters(), means, strict=True):
        torch.testing.assert_close(mine, mean)


def test_statistics_are_measured_anew_as_the_mean_over_the_batches():
    network = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.ReLU(), nn.Linear(4, 2))
    network[1].running_mean.fill_(7.0)
    batches = [torch.randn(6, 3) for _ in range(5)]
    hidden = [network[0](batch) for batch in batches]
    recalibrate_batchnorm(network, batches)
    norm = network[1]
    torch.testing.assert_close(norm.running_mean, torch.stack([h.mean(0) for h in hidden]).mean(0))
    torch.testing.assert_close(norm.running_var, torch.stack([h.var(0) for h in hidden]).mean(0))
    assert norm.momentum == 0.1
    assert not network.training


@pytest.fixture
def averaging(tiny):
    return [*tiny, "train.average_last=0.25", "train.log_steps=1"]


def run(pictures, out, overrides, **options):
    options = {"recipe": "glyphs", "overrides": overrides, "progress": False, **options}
    return psco.pretrain(pictures, out=out, **options)


def test_the_model_is_the_mean_of_the_last_weights_with_statistics_of_its_own(
    pictures, tmp_path, averaging
):
    folder, online = tmp_path / "run", []

    def keep(row) -> None:  # rows come before the checkpoint of their step
        if row["step"] in (11, 12):
            online.append(load_resume(folder)["method"])

    run(pictures, folder, averaging, loggers=[keep], checkpoint_steps=1)
    state = load_resume(folder)
    online.append(state["method"])
    model = load_file(folder / "model.safetensors")
    assert state["average"]["steps"] == 3
    names = [name for name, _ in make().named_parameters() if not name.startswith("ema.")]
    for name in names:
        mean = torch.stack([weights[name] for weights in online]).mean(dim=0)
        torch.testing.assert_close(model[name], mean)
        assert not torch.equal(model[name], online[-1][name])

    # The statistics: the first epoch's batches through the mean network, normalised by themselves.
    loop = make_loop(pictures, tmp_path, averaging)
    twin = loop.method.module
    twin.load_state_dict(model, strict=False)
    first = next(layer for layer in twin.backbone.modules() if isinstance(layer, nn.Conv2d))
    batches = [loop._views(loop.feed[number][0], number)[0] for number in range(60 // 16)]
    means = torch.stack([first(batch).mean(dim=(0, 2, 3)) for batch in batches])
    stored = model["backbone.1.running_mean"]
    torch.testing.assert_close(stored, means.mean(dim=0), rtol=1e-4, atol=1e-6)


def test_a_run_stopped_before_and_while_averaging_resumes_to_the_same_bits(
    pictures, tmp_path, averaging
):
    filling = "method={name: psco, shots: 2, queue_size: 150, filled_queue: true}"
    run(pictures, tmp_path / "whole", [*averaging, filling])

    def stop(row) -> None:
        if row["step"] in (5, 10, 12) and row["step"] > stopped[-1]:
            stopped.append(row["step"])
            raise KeyboardInterrupt

    stopped = [0]
    options = {"loggers": [stop], "checkpoint_steps": 1, "resume": True}
    for _ in range(3):
        with pytest.raises(KeyboardInterrupt):
            run(pictures, tmp_path / "parts", [*averaging, filling], **options)
    run(pictures, tmp_path / "parts", [*averaging, filling], **options)
    assert stopped == [0, 5, 10, 12]
    for read in (lambda folder: load_resume(folder)["method"], psco_model):
        one, other = read(tmp_path / "whole"), read(tmp_path / "parts")
        assert one.keys() == other.keys()
        assert all(torch.equal(one[name], other[name]) for name in one)


def psco_model(folder):
    return load_file(folder / "model.safetensors")


def test_a_lost_model_of_a_finished_run_is_restored_with_the_mean_weights(
    pictures, tmp_path, averaging
):
    run(pictures, tmp_path / "run", averaging)
    before = psco_model(tmp_path / "run")
    (tmp_path / "run" / "model.safetensors").unlink()
    run(pictures, tmp_path / "run", averaging, resume=True)
    after = psco_model(tmp_path / "run")
    assert all(torch.equal(before[name], after[name]) for name in before)


def test_averaging_leaves_the_training_itself_alone(pictures, tmp_path, tiny, averaging):
    run(pictures, tmp_path / "with", averaging)
    run(pictures, tmp_path / "without", [*tiny, "train.log_steps=1"])
    one, other = (load_resume(tmp_path / name) for name in ("with", "without"))
    assert "average" not in other
    assert all(torch.equal(value, other["method"][name]) for name, value in one["method"].items())
    model = psco_model(tmp_path / "without")
    assert all(torch.equal(value, other["method"][name]) for name, value in model.items())
