"""The losses of the self-supervised rivals against loops, one pair of images at a time."""

from __future__ import annotations

import math
from functools import partial

import numpy as np
import ot
import pytest
import torch
import torch.nn.functional as F
from steps import run_loss
from torch import Tensor, nn

from psco.errors import InputError
from psco.methods.byol import BYOL
from psco.methods.moco import MoCo
from psco.methods.simclr import SimCLR, nt_xent
from psco.methods.swav import SwAV, codes, swapped_loss
from psco.networks import Networks

WIDTH, DIM, N = 12, 6, 5


def unit(*shape: int, seed: int = 0) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return F.normalize(torch.randn(*shape, generator=generator, dtype=torch.float64), dim=-1)


def networks() -> tuple[nn.Module, nn.Module, nn.Module]:
    """Give f, g and h for images of 1 x 3 x 4, in double precision."""
    torch.manual_seed(0)
    f = nn.Sequential(nn.Flatten(), nn.Linear(12, WIDTH), nn.BatchNorm1d(WIDTH))
    return f.double(), nn.Linear(WIDTH, DIM).double(), nn.Linear(DIM, DIM).double()


def views(seed: int = 1) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    a, b = torch.randn(2, N, 1, 3, 4, generator=generator, dtype=torch.float64)
    return a, b


def cross_entropy(scores: list[float], right: int) -> float:
    return math.log(sum(math.exp(score) for score in scores)) - scores[right]


# ----------------------------------------------------------------------------------------- SimCLR


@pytest.mark.parametrize("temperature", [0.1, 0.5])
def test_nt_xent_equals_its_loop(temperature):
    a, b = unit(N, DIM), unit(N, DIM, seed=1)
    everything = [*a, *b]
    terms = []
    for i, z in enumerate(everything):
        others = [j for j in range(2 * N) if j != i]
        scores = [float(z @ everything[j]) / temperature for j in others]
        terms.append(cross_entropy(scores, others.index((i + N) % (2 * N))))
    assert nt_xent(a, b, temperature).item() == pytest.approx(np.mean(terms), abs=1e-12)


def test_simclr_sends_both_views_through_the_network_as_one_batch():
    f, g, _ = networks()
    a, b = views()
    method = SimCLR(Networks(f, g, None), temperature=0.5)
    z = F.normalize(g(f(torch.cat([a, b]))), dim=1)
    twin = nt_xent(z[:N], z[N:], 0.5)
    assert run_loss(method, a, b)["total"].item() == pytest.approx(twin.item())


@pytest.mark.parametrize("make", [SimCLR, partial(SwAV, clusters=7)])
def test_separate_batchnorm_normalises_each_view_by_its_own_statistics(make):
    f, g, _ = networks()
    torch.manual_seed(4)
    method = make(Networks(f, g, None), joint_batchnorm=False).double()
    a, b = views()
    b = 3 * b + 2  # with statistics of its own
    z_a, z_b = F.normalize(g(f(a)), dim=1), F.normalize(g(f(b)), dim=1)
    if isinstance(method, SimCLR):
        twin = nt_xent(z_a, z_b, 0.5)
    else:
        scores = [z @ method.centres.T for z in (z_a, z_b)]
        twin = swapped_loss(*scores, codes(scores[0]), codes(scores[1]), 0.1)
    assert run_loss(method, a, b)["total"].item() == pytest.approx(twin.item())
    method.joint_batchnorm = True
    assert run_loss(method, a, b)["total"].item() != pytest.approx(twin.item())


# ------------------------------------------------------------------------------------------- MoCo


def test_moco_equals_its_loop_over_the_own_key_and_the_queue():
    f, g, _ = networks()
    a, b = views()
    method = MoCo(Networks(f, g, None), queue_size=8, temperature=0.2)
    queue = method.queue.keys.double()
    # Before the first step the momentum network is a copy, and an average with it changes nothing.
    q, k = (F.normalize(g(f(x)), dim=1).detach() for x in (a, b))
    terms = [
        cross_entropy([float(q[n] @ key) / 0.2 for key in [k[n], *queue]], right=0)
        for n in range(N)
    ]
    assert run_loss(method, a, b)["total"].item() == pytest.approx(np.mean(terms), abs=1e-6)


def test_moco_remembers_the_keys_after_the_loss_and_averages_before_it():
    f, g, _ = networks()
    a, b = views()
    method = MoCo(Networks(f, g, None), queue_size=8, momentum=0.9)
    before = method.ema.network.projector.weight.clone()
    with torch.no_grad():
        g.weight += 1
    run_loss(method, a, b)
    expected = 0.9 * before + 0.1 * g.weight
    torch.testing.assert_close(method.ema.network.projector.weight, expected)
    keys = method.ema.key(b)
    torch.testing.assert_close(method.queue.keys[:N], keys.float(), atol=1e-6, rtol=0)
    assert int(method.queue.position) == N


def test_evaluation_mode_and_later_parts_of_a_step_leave_the_average_alone():
    f, g, h = networks()
    a, b = views()
    for method in (
        MoCo(Networks(f, g, None), queue_size=8, momentum=0.5),
        BYOL(Networks(f, g, h), momentum=0.5),
    ):
        with torch.no_grad():
            g.weight += 1
        before = {n: v.clone() for n, v in method.ema.named_parameters()}
        assert before
        run_loss(method.train(), a, b, starts_step=False)
        run_loss(method.eval(), a, b)
        after = dict(method.ema.named_parameters())
        assert all(torch.equal(before[name], after[name]) for name in before)


# ------------------------------------------------------------------------------------------- SwAV


def test_swavs_codes_are_the_assignment_by_pot_at_convergence():
    scores = unit(40, DIM) @ unit(10, DIM, seed=1).T  # (N, P)
    rows, columns = np.full(40, 1 / 40), np.full(10, 1 / 10)
    plan = ot.sinkhorn(rows, columns, -scores.numpy(), reg=0.05, numItermax=20000, stopThr=1e-13)
    ours = codes(scores, epsilon=0.05, iterations=5000)
    np.testing.assert_allclose(ours.numpy(), 40 * plan, atol=1e-8)


def test_codes_sum_to_one_for_an_image_and_come_to_equal_shares_for_a_cluster():
    scores = unit(64, DIM) @ unit(8, DIM, seed=1).T
    few, many = codes(scores), codes(scores, iterations=300)
    for found in (few, many):
        torch.testing.assert_close(found.sum(dim=1), torch.ones(64, dtype=torch.float64))
    uneven = [
        (c.sum(dim=0) / 8 - 1).abs().max() for c in ((scores / 0.05).softmax(dim=1), few, many)
    ]
    assert uneven[2] < 1e-3 < uneven[1] < uneven[0]
    assert not codes(unit(4, DIM).requires_grad_() @ unit(3, DIM).T).requires_grad


def test_the_swapped_loss_equals_its_loop():
    scores_a, scores_b = (unit(N, DIM, seed=s) @ unit(7, DIM, seed=9).T for s in (0, 1))
    codes_a, codes_b = codes(scores_a), codes(scores_b)
    twin = 0.0
    for n in range(N):
        for code, scores in ((codes_a[n], scores_b[n]), (codes_b[n], scores_a[n])):
            rest = [float(s) / 0.1 for s in scores]
            twin += sum(float(code[p]) * cross_entropy(rest, p) for p in range(7)) / N
    ours = swapped_loss(scores_a, scores_b, codes_a, codes_b, 0.1)
    assert ours.item() == pytest.approx(twin, abs=1e-10)


def test_swavs_centres_fit_the_projector_stay_of_unit_length_and_get_a_gradient():
    f, g, _ = networks()
    method = SwAV(Networks(f, g, None), clusters=7).double()
    with torch.no_grad():
        method.centres *= 3
    run_loss(method, *views())["total"].backward()
    assert method.centres.shape == (7, DIM)
    torch.testing.assert_close(method.centres.norm(dim=1), torch.ones(7, dtype=torch.float64))
    assert method.centres.grad.abs().sum() > 0


def test_swavs_queue_takes_part_in_the_assignment_and_only_there():
    f, g, _ = networks()
    a, b = views()
    torch.manual_seed(3)
    method = SwAV(Networks(f, g, None), clusters=4, queue_size=12).double()
    queue_a, queue_b = method.queue_a.keys.clone(), method.queue_b.keys.clone()
    loss = run_loss(method, a, b)["total"]
    z = F.normalize(g(f(torch.cat([a, b]))), dim=1).detach()
    scores = [part @ method.centres.detach().T for part in (z[:N], z[N:], queue_a, queue_b)]
    with_queue = [codes(torch.cat([scores[v], scores[v + 2]]))[:N] for v in (0, 1)]
    assert loss.item() == pytest.approx(swapped_loss(*scores[:2], *with_queue, 0.1).item())
    without = [codes(scores[v]) for v in (0, 1)]
    assert loss.item() != pytest.approx(swapped_loss(*scores[:2], *without, 0.1).item())
    torch.testing.assert_close(method.queue_a.keys[:N], z[:N])
    torch.testing.assert_close(method.queue_b.keys[:N], z[N:])


# ------------------------------------------------------------------------------------------- BYOL


@pytest.mark.parametrize("symmetric", [True, False])
def test_byol_equals_its_loop_in_both_directions_or_twice_in_one(symmetric):
    f, g, h = networks()
    a, b = views()
    method = BYOL(Networks(f, g, h), symmetric=symmetric)
    predicted = [F.normalize(h(g(f(x))), dim=1).detach() for x in (a, b)]
    target = [F.normalize(g(f(x)), dim=1).detach() for x in (a, b)]  # the twin is still a copy
    pairs = [(0, 1), (1, 0)] if symmetric else [(0, 1), (0, 1)]
    twin = sum(
        float((predicted[p][n] - target[t][n]).square().sum()) / N
        for p, t in pairs
        for n in range(N)
    )
    assert run_loss(method, a, b)["total"].item() == pytest.approx(twin, abs=1e-10)


def test_no_gradient_reaches_the_momentum_networks():
    f, g, h = networks()
    for method in (BYOL(Networks(f, g, h)), MoCo(Networks(f, g, None), queue_size=8)):
        run_loss(method, *views())["total"].backward()
        momentum = [p for n, p in method.named_parameters() if n.startswith("ema.")]
        assert momentum
        assert all(p.grad is None and not p.requires_grad for p in momentum)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (
            lambda f, g, h: SimCLR(Networks(f, g, h), temperature=0),
            "temperature must be > 0, got 0",
        ),
        (
            lambda f, g, h: MoCo(Networks(f, g, h), momentum=2),
            "momentum must be between 0 and 1, got 2",
        ),
        (
            lambda f, g, h: MoCo(Networks(f, g, h), queue_size=0),
            "queue_size must be at least 1, got 0",
        ),
        (lambda f, g, h: SwAV(Networks(f, g, h), clusters=1), "clusters must be at least 2, got 1"),
        (
            lambda f, g, h: SwAV(Networks(f, g, h), sinkhorn_epsilon=0),
            "sinkhorn_epsilon must be > 0",
        ),
        (lambda f, g, _: BYOL(Networks(f, g, None)), "byol collapses without a predictor"),
    ],
)
def test_settings_that_cannot_be_are_named(make, message):
    with pytest.raises(InputError, match=message):
        make(*networks())
