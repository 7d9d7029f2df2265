"""Every equation of the paper against a slow twin: plain loops over float64 numbers."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from steps import run_loss

import psco
import psco.methods.psco
from psco.methods import Batch
from psco.networks import Networks
from psco.ops.contrast import PseudoLabels, contrast_with_queue, plain_contrast_with_queue


def unit(n: int, d: int, seed: int) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    return F.normalize(torch.randn(n, d, dtype=torch.float64, generator=generator), dim=1)


def dot(a: list[float], b: list[float]) -> float:
    return sum(x * y for x, y in zip(a, b, strict=True))


def contrast_twin(q, k, A, tau) -> float:
    """Eq. (1), symbol by symbol."""
    q, k, A = q.tolist(), k.tolist(), A.tolist()
    total = 0.0
    for i in range(len(q)):
        denominator = sum(math.exp(dot(q[i], k[m]) / tau) for m in range(len(k)))
        inner = 0.0
        for j in range(len(k)):
            if A[i][j]:
                inner += math.log(math.exp(dot(q[i], k[j]) / tau) / denominator)
        total += inner / sum(A[i])
    return -total / len(q)


def sinkhorn_twin(sim, epsilon, iterations) -> list[list[float]]:
    """Rewrites the whole matrix: columns to 1/M, then rows to 1/N, again and again."""
    sim = sim.tolist()
    N, M = len(sim), len(sim[0])
    P = [[math.exp(x / epsilon) for x in row] for row in sim]
    for _ in range(iterations):
        for j in range(M):
            column = sum(P[i][j] for i in range(N))
            for i in range(N):
                P[i][j] /= column * M
        for i in range(N):
            row = sum(P[i])
            P[i] = [x / (row * N) for x in P[i]]
    return P


@pytest.mark.parametrize("tau", [0.07, 0.2, 1.0])
def test_contrastive_loss_is_equation_1_for_any_number_of_positives(tau):
    q, k = unit(5, 7, 0), unit(9, 7, 1)
    A = (torch.rand(5, 9, generator=torch.Generator().manual_seed(2)) < 0.4).double()
    A[:, 3] = 1
    assert psco.contrastive_loss(q, k, A, tau).item() == pytest.approx(contrast_twin(q, k, A, tau))
    assert psco.contrastive_loss(q, k, A.bool(), tau) == psco.contrastive_loss(q, k, A, tau)


def test_contrastive_loss_refuses_a_query_without_positives():
    A = torch.eye(4, 6)
    A[2] = 0
    with pytest.raises(psco.InputError, match="query 2 has no positive key"):
        psco.contrastive_loss(unit(4, 3, 0).float(), unit(6, 3, 1).float(), A, 1.0)


@pytest.mark.parametrize(("A", "tau"), [(torch.ones(3, 5), 1.0), (torch.ones(4, 6), 0.0)])
def test_contrastive_loss_refuses_wrong_shapes_and_temperatures(A, tau):
    with pytest.raises(psco.InputError, match=r"\(4, 6\)|temperature must be > 0, got 0.0"):
        psco.contrastive_loss(unit(4, 3, 0), unit(6, 3, 1), A, tau)


def test_contrastive_loss_passes_gradients_to_queries_and_keys():
    q, k = unit(3, 4, 0).requires_grad_(), unit(5, 4, 1).requires_grad_()
    A = torch.eye(3, 5, dtype=torch.float64)
    assert torch.autograd.gradcheck(lambda q, k: psco.contrastive_loss(q, k, A, 0.5), (q, k))


@pytest.mark.parametrize("iterations", [1, 3, 10])
def test_sinkhorn_is_alternate_normalisation_of_columns_and_rows(iterations):
    sim = unit(6, 4, 0) @ unit(11, 4, 1).T
    twin = torch.tensor(sinkhorn_twin(sim, 0.05, iterations), dtype=torch.float64)
    torch.testing.assert_close(psco.sinkhorn(sim, 0.05, iterations), twin)
    from psco.ops.sinkhorn import _log_sinkhorn

    torch.testing.assert_close(_log_sinkhorn(sim, 0.05, iterations), twin)


@pytest.mark.parametrize("batch_negatives", [False, True])
def test_moco_loss_is_equation_6_over_own_key_and_negatives(batch_negatives):
    q, z, queue = unit(5, 7, 0), unit(5, 7, 1), unit(8, 7, 2)
    total = 0.0
    for i in range(5):
        keys = z if batch_negatives else z[i : i + 1]
        own = i if batch_negatives else 0
        candidates = torch.cat([keys, queue])
        A = torch.zeros(1, len(candidates))
        A[0, own] = 1
        total += contrast_twin(q[i : i + 1], candidates, A, 0.2)
    loss = psco.moco_loss(q, z, queue, 0.2, batch_negatives)
    assert loss.item() == pytest.approx(total / 5)


@pytest.mark.parametrize("spared", [None, torch.arange(10).view(5, 2) % 8], ids=["all", "spared"])
@pytest.mark.parametrize("batch_negatives", [False, True])
@pytest.mark.parametrize("temperature", [0.05, 0.2, 5.0])
def test_the_quick_contrast_has_loss_and_gradient_of_the_plain_one(
    temperature, batch_negatives, spared
):
    q, z, queue = unit(5, 7, 0).double(), unit(5, 7, 1).double(), unit(8, 7, 2).double()
    results = []
    for contrast in (contrast_with_queue, plain_contrast_with_queue):
        free = q.clone().requires_grad_()
        loss = contrast(free, z, queue, temperature, batch_negatives, spared)
        (3 * loss).backward()
        results.append((loss.detach(), free.grad))
    torch.testing.assert_close(*results, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("case", ["very cold", "key with gradient", "half precision"])
def test_where_the_quick_contrast_does_not_apply_the_plain_one_answers(case):
    q, z, queue = unit(5, 7, 0).requires_grad_(), unit(5, 7, 1), unit(8, 7, 2)
    temperature = 0.004 if case == "very cold" else 0.2
    if case == "key with gradient":
        z.requires_grad_()
    if case == "half precision":
        q, z, queue = (x.detach().bfloat16() for x in (q, z, queue))
    loss = contrast_with_queue(q, z, queue, temperature)
    assert loss.isfinite()
    torch.testing.assert_close(
        loss.float(),
        plain_contrast_with_queue(q, z, queue, temperature).float(),
        rtol=1e-2,
        atol=1e-2,
    )
    if case == "key with gradient":
        loss.backward()
        assert z.grad.abs().sum() > 0


@pytest.mark.parametrize("shots", [1, 3])
def test_the_pseudo_supervised_loss_is_equation_1_with_a_block_diagonal_matrix(shots):
    q, s = unit(4, 7, 0), unit(4 * shots, 7, 1)
    A = torch.zeros(4, 4 * shots)
    for n in range(4):
        A[n, n * shots : (n + 1) * shots] = 1
    loss = psco.contrastive_loss(q, s, PseudoLabels(first=0, total=4), 0.7)
    assert loss.item() == pytest.approx(contrast_twin(q, s, A, 0.7))


def test_byol_loss_is_the_squared_distance_in_both_directions():
    q, z = unit(5, 7, 0), unit(5, 7, 1)
    twin = sum(2 * ((q[i] - z[i]) ** 2).sum().item() for i in range(5)) / 5
    assert psco.byol_loss(q, z).item() == pytest.approx(twin)


def test_prototypes_are_normalised_class_sums_also_for_unequal_shots_and_many_tasks():
    support = unit(12, 5, 0).view(2, 6, 5)
    labels = torch.tensor([[0, 0, 1, 2, 2, 2], [2, 1, 0, 1, 1, 0]])
    result = psco.prototypes(support, labels, 3)
    for t in range(2):
        for y in range(3):
            total = [
                sum(support[t, s, i].item() for s in range(6) if labels[t, s] == y)
                for i in range(5)
            ]
            length = math.sqrt(dot(total, total))
            assert result[t, y].tolist() == pytest.approx([x / length for x in total])


def test_the_loss_of_the_module_is_algorithm_1(double_module):
    """Every line of Algorithm 1 and of L_MoCo, with loops, on the module's own networks."""
    module, x1, x2 = double_module
    before = module.queue.keys.clone()
    module.update_ema(Batch(x1, x2))
    q = F.normalize(module.predictor(module.projector(module.backbone(x1))), dim=1)
    z = module.ema.key(x2)
    sim = torch.tensor([[dot(a, b) for b in before.tolist()] for a in z.tolist()])
    plan = sinkhorn_twin(sim.double(), 0.05, 3)
    chosen = [sorted(range(len(r)), key=lambda j, r=r: -r[j])[:2] for r in plan]
    s = torch.stack([before[j] for row in chosen for j in row])
    A = torch.zeros(6, 12)
    for i in range(6):
        A[i, 2 * i] = A[i, 2 * i + 1] = 1
    psco_twin = contrast_twin(q, s, A, 1.0)
    moco_twin = sum(
        contrast_twin(q[i : i + 1], torch.cat([z[i : i + 1], before]), torch.eye(1, 21), 0.2) / 6
        for i in range(6)
    )
    module.momentum = 1.0  # the average is up to date already
    losses = run_loss(module, x1, x2)
    assert losses["psco"].item() == pytest.approx(psco_twin)
    assert losses["moco"].item() == pytest.approx(moco_twin)
    assert losses["total"].item() == pytest.approx(psco_twin + moco_twin)
    repeated = 1 - len({j for row in chosen for j in row}) / 12
    assert losses["overlap"].item() == pytest.approx(repeated)


@pytest.fixture
def double_module():
    torch.manual_seed(0)
    backbone = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(9, 8), torch.nn.Tanh())
    module = psco.PsCo(
        Networks(backbone, psco.projector(8, hidden=10, out=5), psco.predictor(5, hidden=10)),
        queue_size=20,
        shots=2,
    ).double()
    with torch.no_grad():
        for parameter in module.ema.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.1)
    return module, torch.randn(6, 1, 3, 3).double(), torch.randn(6, 1, 3, 3).double()


# ------------------------------------------------------------------------------ shown = executed


@pytest.fixture(params=["off", "on"])
def kernels(request):
    if request.param == "off":
        request.getfixturevalue("without_kernels")


def last_loss(pictures, folder, tiny) -> float:
    run = psco.pretrain(
        pictures, out=folder, recipe="glyphs", overrides=[*tiny, "train.steps=3"], progress=False
    )
    return run.metrics[-1]["psco"]


@pytest.mark.parametrize("name", ["contrastive_loss", "sinkhorn"])
def test_training_computes_the_equations_that_the_paper_file_shows(
    name, kernels, pictures, tmp_path, tiny, quick_calibration, monkeypatch
):
    """Replacing what states Eq. (1) or Eq. (4) in methods/psco.py changes what training does."""
    before = last_loss(pictures, tmp_path / "before", tiny)
    assert last_loss(pictures, tmp_path / "again", tiny) == before
    if name == "contrastive_loss":
        changed = lambda q, k, A, tau: 0.5 * psco.contrastive_loss(q, k, A, tau)  # noqa: E731
    else:  # a plan that prefers the first items of the queue, whatever the similarities are
        changed = lambda sim, *_: torch.arange(50.0, 0.0, -1).expand(len(sim.z), -1)  # noqa: E731
    monkeypatch.setattr(f"psco.methods.psco.{name}", changed)
    after = last_loss(pictures, tmp_path / "after", tiny)
    if name == "contrastive_loss":
        assert after < 0.75 * before
    else:
        assert after != before


def test_the_paper_fits_on_a_few_screens():
    lines = Path(psco.methods.psco.__file__).read_text().splitlines()
    assert len(lines) <= 220
