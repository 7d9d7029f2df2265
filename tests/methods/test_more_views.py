"""PsCo with several online views of an image, and with mixed negatives."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from steps import run_loss

import psco
from psco.errors import InputError
from psco.methods import METHODS
from psco.methods.psco import PsCo
from psco.methods.psco_extended import ExtendedPsCo
from psco.networks import Networks


def make(kind: type[PsCo] = ExtendedPsCo, **options: object) -> PsCo:
    torch.manual_seed(0)
    networks = Networks(
        psco.conv4(1, 16, width=8),
        psco.projector(8, hidden=24, out=12),
        psco.predictor(12, hidden=24),
    )
    return kind(networks, **{"queue_size": 40, "shots": 3, "momentum": 1.0, **options})


def images(count: int, seed: int) -> torch.Tensor:
    return torch.randn(count, 1, 16, 16, generator=torch.Generator().manual_seed(seed))


def test_every_online_view_is_a_query_of_the_pseudo_task_and_of_moco():
    method = make(temperature=0.5)
    x1, x2 = images(3 * 6, 1), images(6, 2)
    queue = method.queue.keys.clone()
    found = run_loss(method, x1, x2)

    twin = make(temperature=0.5)
    q = twin.query(x1)  # one batch: BatchNorm sees all online views together
    z = twin.ema.key(x2)
    plan = psco.sinkhorn(z @ queue.T, 0.05, 3)
    shots = plan.topk(3, dim=1).indices  # (6, 3)
    s = queue[shots.flatten()]  # (18, d)
    psco_terms, moco_terms = [], []
    for row, query in enumerate(q):
        own = row % 6
        logits = query @ s.T / 0.5
        psco_terms.append(logits.logsumexp(0) - logits[3 * own : 3 * own + 3].mean())
        logits = query @ torch.cat([z[own : own + 1], queue]).T / 0.2
        moco_terms.append(logits.logsumexp(0) - logits[0])
    torch.testing.assert_close(found["psco"], torch.stack(psco_terms).mean())
    torch.testing.assert_close(found["moco"], torch.stack(moco_terms).mean())
    torch.testing.assert_close(found["total"], found["psco"] + found["moco"])
    torch.testing.assert_close(method.queue.keys[:6], z)  # one key an image, from its momentum view


def test_one_online_view_trains_with_the_bits_of_the_paper():
    results = []
    for kind in (ExtendedPsCo, PsCo):
        method = make(kind)
        loss = run_loss(method, images(6, 1), images(6, 2))["total"]
        loss.backward()
        results.append([loss, *(p.grad for p in method.parameters() if p.requires_grad)])
    assert all(torch.equal(*pair) for pair in zip(*results, strict=True))


@pytest.mark.parametrize("options", [{"own_view": True, "reciprocal": 4}, {"spare_shots": True}])
def test_the_other_options_hold_for_every_online_view(options):
    x2 = images(6, 2)
    same = torch.cat([images(6, 1)] * 3)
    one = run_loss(make(**options).eval(), same[:6], x2)
    three = run_loss(make(**options).eval(), same, x2)
    for name in ("psco", "moco"):
        torch.testing.assert_close(three[name], one[name])


@pytest.mark.parametrize("lengths", [(9, 6), (6, 12), (0, 0)])
def test_online_views_must_be_a_multiple_of_the_images(lengths):
    a, b = (images(max(n, 1), 0)[:n] for n in lengths)
    with pytest.raises(InputError, match=f"got {lengths[0]} and {lengths[1]}"):
        run_loss(make(), a, b)


def test_mixed_negatives_join_those_of_the_queue_in_the_moco_loss():
    method = make(mixed_negatives=4, momentum=1.0).eval()
    x1, x2 = images(6, 1), images(6, 2)
    queue = method.queue.keys.clone()
    torch.manual_seed(5)
    found = run_loss(method, x1, x2)
    torch.manual_seed(5)
    part = 0.5 * torch.rand(6, 4)
    q, z = method.query(x1), method.ema.key(x2)
    total = []
    for n in range(6):
        nearest = (queue @ q[n]).topk(4).indices
        mixed = [(1 - c) * queue[m] + c * q[n] for c, m in zip(part[n], nearest, strict=True)]
        keys = torch.cat([z[n : n + 1], queue, F.normalize(torch.stack(mixed), dim=1)])
        logits = keys @ q[n] / 0.2
        total.append(logits.logsumexp(0) - logits[0])
    torch.testing.assert_close(found["moco"], torch.stack(total).mean())


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"mixed_negatives": -1}, "mixed_negatives must be between 0 and queue_size, got -1"),
        ({"mixed_negatives": 41}, "mixed_negatives must be between 0 and queue_size, got 41"),
        ({"mixed_negatives": 2, "auxiliary": "none"}, "mixed_negatives requires auxiliary='moco'"),
        ({"mixed_negatives": 2, "batch_negatives": True}, "and batch_negatives=false"),
    ],
)
def test_impossible_mixed_negatives_are_refused(options, message):
    with pytest.raises(InputError, match=message):
        make(**options)


def test_a_queue_that_is_still_short_mixes_as_many_as_it_has():
    method = make(mixed_negatives=20, filled_queue=True, spare_shots=True)
    assert torch.isfinite(run_loss(method, images(6, 1), images(6, 2))["total"])


def test_the_methods_that_read_several_online_views_say_so():
    assert {name for name in METHODS if METHODS[name].takes_more_views} == {
        "psco",
        "psco-byol",
        "uml",
    }
