"""The PsCo module as a whole: what a call changes, its switches and its diagnostics."""

from __future__ import annotations

import copy

import pytest
import torch
from steps import run_loss
from torch import nn

import psco
from psco.methods import Batch
from psco.networks import Networks


def make(**options: object) -> psco.PsCo:
    torch.manual_seed(0)
    predictor = options.pop("predictor", True)
    return psco.PsCo(
        Networks(
            psco.conv4(1, 16, width=8),
            psco.projector(8, hidden=24, out=12),
            psco.predictor(12, hidden=24) if predictor else None,
        ),
        **{"queue_size": 40, "shots": 3, **options},
    )


@pytest.fixture
def views() -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(1)
    return torch.randn(10, 1, 16, 16, generator=generator), torch.randn(
        10, 1, 16, 16, generator=generator
    )


def test_no_gradient_reaches_the_momentum_network_and_all_reaches_the_online_one(views):
    model = make()
    run_loss(model, *views)["total"].backward()
    for name, parameter in model.named_parameters():
        if name.startswith("ema."):
            assert not parameter.requires_grad
            assert parameter.grad is None
        else:
            assert parameter.grad is not None, name
            assert parameter.grad.abs().sum() > 0, name


def test_the_average_is_updated_before_the_forward_pass_by_default(views):
    model = make(momentum=0.5)
    with torch.no_grad():
        for parameter in model.backbone.parameters():
            parameter.add_(1.0)
    first = next(model.ema.parameters()).clone()
    reference = copy.deepcopy(model)
    reference.update_ema(Batch(*views))
    reference.momentum = 1.0
    losses = run_loss(model, *views)
    torch.testing.assert_close(next(model.ema.parameters()), first + 0.5)
    assert losses["total"] == run_loss(reference, *views)["total"]


def test_the_average_can_be_updated_after_the_loss_instead(views):
    model, frozen = make(momentum=0.5, ema_first=False), make(momentum=1.0)
    for module in (model, frozen):
        with torch.no_grad():
            next(module.backbone.parameters()).add_(1.0)
    before = next(model.ema.parameters()).clone()
    assert run_loss(model, *views)["total"] == run_loss(frozen, *views)["total"]
    torch.testing.assert_close(next(model.ema.parameters()), before + 0.5)


def test_the_queue_receives_the_momentum_keys_of_the_batch(views):
    model = make(momentum=1.0)
    run_loss(model, *views)
    z = model.ema.key(views[1])
    torch.testing.assert_close(model.queue.keys[:10], z)
    assert model.queue.position == 10


def test_evaluation_mode_changes_nothing(views):
    model = make().eval()
    before = copy.deepcopy(model.state_dict())
    first, second = run_loss(model, *views)["total"], run_loss(model, *views)["total"]
    assert first == second
    assert all(torch.equal(before[name], value) for name, value in model.state_dict().items())


def test_only_the_first_batch_of_a_step_moves_the_average_but_all_feed_the_queue(views):
    model = make(momentum=0.5)
    with torch.no_grad():
        next(model.backbone.parameters()).add_(1.0)
    before = next(model.ema.parameters()).clone()
    run_loss(model, *views, starts_step=False)
    assert torch.equal(next(model.ema.parameters()), before)
    assert model.queue.position == 10


@pytest.mark.parametrize(
    "switch",
    [
        {"momentum_network": False},
        {"predictor": False},
        {"sinkhorn": False},
        {"sample_shots": True},
        {"sample_shots": True, "sinkhorn": False},
        {"auxiliary": "none"},
        {"auxiliary": None},
        {"auxiliary": "byol"},
        {"batch_negatives": True},
        {"ema_buffers": "average"},
    ],
    ids=str,
)
def test_every_component_can_be_switched_off_and_still_trains(switch, views):
    model = make(**switch)
    optimizer = torch.optim.SGD([p for p in model.parameters() if p.requires_grad], lr=0.1)
    losses = []
    for _ in range(12):
        report = run_loss(model, *views)
        losses.append(report["total"].item())
        optimizer.zero_grad()
        report["total"].backward()
        optimizer.step()
    assert losses[-1] < losses[0]
    expected = {"total", "psco", "overlap", "embedding_std"}
    auxiliary = switch.get("auxiliary", "moco")
    assert set(report) == expected | ({auxiliary} if auxiliary in ("moco", "byol") else set())


def test_without_sinkhorn_the_shots_are_the_nearest_keys(views):
    model = make(sinkhorn=False, momentum=1.0, auxiliary="none", shots=1)
    z = model.ema.key(views[1])
    nearest = (z @ model.queue.keys.T).argmax(dim=1)
    q = model.embed_query(views[0])
    logits = q @ model.queue.keys[nearest].T
    expected = nn.functional.cross_entropy(logits, torch.arange(10))
    torch.testing.assert_close(run_loss(model, *views)["psco"], expected.detach())


def test_the_online_network_gives_the_keys_without_a_momentum_network(views):
    model = make(momentum_network=False)
    assert not any(name.startswith("ema.") for name, _ in model.named_parameters())
    with_zero_momentum = make(momentum=0.0)
    torch.testing.assert_close(
        run_loss(model, *views)["total"], run_loss(with_zero_momentum, *views)["total"]
    )


def test_purity_is_the_share_of_shots_of_the_true_class_and_changes_no_loss(views):
    labelled, blind = make(), make()
    labels = torch.arange(10) % 3
    for _ in range(5):  # fills the queue of 40
        with_labels, without = run_loss(labelled, *views, labels), run_loss(blind, *views)
        assert with_labels["total"] == without["total"]
        assert "purity" not in without
    model = copy.deepcopy(labelled)
    model.momentum = 1.0
    z = model.ema.key(views[1])
    shots = psco.select_shots(psco.sinkhorn(z @ model.queue.keys.T), 3).tolist()
    right = sum(model.queue.labels[j] == labels[i] for i in range(10) for j in shots[i])
    labelled.momentum = 1.0
    torch.testing.assert_close(run_loss(labelled, *views, labels)["purity"], right / 30)


def test_queries_pass_the_predictor_and_supports_do_not():
    model, x = make().eval(), torch.randn(4, 1, 16, 16)
    features = model.backbone(x)
    support = nn.functional.normalize(model.projector(features), dim=1)
    query = nn.functional.normalize(model.predictor(model.projector(features)), dim=1)
    torch.testing.assert_close(model.embed_support(x), support)
    torch.testing.assert_close(model.embed_query(x), query)


def test_any_module_that_returns_vectors_is_a_backbone(views):
    backbone = nn.Sequential(nn.Flatten(), nn.LazyLinear(6))
    backbone(views[0])
    model = psco.PsCo(Networks(backbone, nn.Linear(6, 4), nn.Linear(4, 4)), queue_size=7, shots=2)
    assert run_loss(model, *views)["total"].isfinite()
    identity = psco.PsCo(Networks(backbone, dim=6), queue_size=7, shots=2)
    assert run_loss(identity, *views)["total"].isfinite()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"shots": 41}, "between 1 and queue_size = 40, got 41"),
        ({"momentum": 1.5}, "momentum must be between 0 and 1, got 1.5"),
        ({"temperature": 0}, "temperature must be > 0, got 0"),
        ({"sinkhorn_iterations": 0}, "sinkhorn_iterations must be > 0, got 0"),
        ({"auxiliary": "simclr"}, "'moco', 'byol' or 'none', got 'simclr'"),
        ({"auxiliary": "byol", "predictor": False}, "collapses without a predictor"),
        ({"ema_buffers": "mean"}, "got 'mean'"),
    ],
)
def test_impossible_options_are_refused_with_their_value(options, message):
    with pytest.raises(psco.InputError, match=message):
        make(**options)


def test_views_of_different_batches_are_refused(views):
    with pytest.raises(psco.InputError, match="got 10 and 9"):
        run_loss(make(), views[0], views[1][:9])


def test_half_precision_gives_a_finite_loss_near_the_full_one(views):
    full = run_loss(make(), *views)["total"]
    with torch.autocast("cpu", dtype=torch.bfloat16):
        half = run_loss(make(), *views)["total"]
    torch.testing.assert_close(half.float(), full, rtol=0.05, atol=0.05)
