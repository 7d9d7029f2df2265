"""Properties of the pseudo-task construction: Sinkhorn's plan and the selection of shots."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

import psco
from psco.ops.sinkhorn import Similarity
from psco.ops.top_k import top_k

matrices = st.tuples(st.integers(1, 6), st.integers(1, 9)).flatmap(
    lambda shape: arrays(
        np.float32, shape, elements=st.floats(width=32, allow_nan=False, allow_infinity=False)
    )
)
cosines = arrays(np.float32, (5, 12), elements=st.floats(-1, 1, width=32))


@given(matrices)
def test_the_plan_of_any_finite_similarity_is_finite_and_its_rows_sum_to_1_over_n(matrix):
    plan = psco.sinkhorn(torch.from_numpy(matrix))
    assert plan.isfinite().all()
    assert (plan >= 0).all()
    rows = torch.full((len(matrix),), 1 / len(matrix))
    torch.testing.assert_close(plan.sum(dim=1), rows, rtol=1e-4, atol=0)


@given(cosines)
@settings(deadline=None)
def test_the_columns_approach_1_over_m_with_more_iterations(matrix):
    def error(iterations):
        plan = psco.sinkhorn(torch.from_numpy(matrix).double(), 0.2, iterations)
        return (plan.sum(dim=0) - 1 / 12).abs().max()

    assert error(300) < 1e-4
    assert error(300) <= error(1) + 1e-12


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
@pytest.mark.parametrize("scale", [1e-4, 1.0, 1e4])
def test_the_plan_has_mass_one_for_every_number_format_and_size(dtype, scale):
    generator = torch.Generator().manual_seed(0)
    sim = ((torch.rand(16, 40, generator=generator) * 2 - 1) * scale).to(dtype)
    plan = psco.sinkhorn(sim)
    assert plan.dtype == (torch.float64 if dtype == torch.float64 else torch.float32)
    assert plan.isfinite().all()
    assert plan.sum().item() == pytest.approx(1, abs=1e-4)


def test_the_plan_is_that_of_pot_at_convergence():
    ot = pytest.importorskip("ot")
    generator = torch.Generator().manual_seed(0)
    sim = torch.rand(8, 20, generator=generator, dtype=torch.float64) * 2 - 1
    rows, columns = np.full(8, 1 / 8), np.full(20, 1 / 20)
    theirs = ot.sinkhorn(rows, columns, -sim.numpy(), reg=0.05, numItermax=10000, stopThr=1e-12)
    ours = psco.sinkhorn(sim, epsilon=0.05, iterations=3000)
    np.testing.assert_allclose(ours.numpy(), theirs, atol=1e-9)


def test_a_small_epsilon_gives_the_best_one_to_one_assignment():
    from scipy.optimize import linear_sum_assignment

    sim = torch.rand(7, 7, generator=torch.Generator().manual_seed(3), dtype=torch.float64)
    plan = psco.sinkhorn(sim, epsilon=1e-3, iterations=2000)
    _, best = linear_sum_assignment(-sim.numpy())
    assert plan.argmax(dim=1).tolist() == best.tolist()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"epsilon": 0.0}, "epsilon must be > 0, got 0.0"),
        ({"iterations": 0}, "iterations must be at least 1, got 0"),
    ],
)
def test_sinkhorn_refuses_impossible_options(options, message):
    with pytest.raises(psco.InputError, match=message):
        psco.sinkhorn(torch.zeros(2, 3), **options)


@given(cosines, st.integers(1, 12), st.booleans())
def test_shots_of_a_row_are_different_and_within_the_queue(matrix, k, sample):
    plan = psco.sinkhorn(torch.from_numpy(matrix))
    shots = psco.select_shots(plan, k, sample=sample)
    assert shots.shape == (5, k)
    assert shots.min() >= 0
    assert shots.max() < 12
    assert all(len(set(row)) == k for row in shots.tolist())


@given(cosines, st.integers(1, 12))
def test_top_shots_are_the_largest_entries_of_their_row(matrix, k):
    plan = torch.from_numpy(matrix)
    shots = psco.select_shots(plan, k)
    kept = plan.gather(1, shots)
    expected = plan.sort(dim=1, descending=True).values[:, :k]
    assert torch.equal(kept, expected)


def test_sampled_shots_follow_the_plan():
    plan = torch.tensor([[0.1, 0.2, 0.3, 0.4]]).expand(20000, 4) / 20000
    shots = psco.select_shots(plan, 1, sample=True, generator=torch.Generator().manual_seed(0))
    shares = torch.bincount(shots.flatten(), minlength=4) / 20000
    torch.testing.assert_close(shares, torch.tensor([0.1, 0.2, 0.3, 0.4]), atol=0.015, rtol=0)


def test_sampling_fills_up_with_entries_without_mass_only_when_it_must():
    plan = torch.tensor([[0.0, 0.5, 0.0, 0.5]]).expand(200, 4)
    two = psco.select_shots(plan, 2, sample=True)
    assert set(two.flatten().tolist()) == {1, 3}
    three = psco.select_shots(plan, 3, sample=True)
    assert all(len(set(row)) == 3 for row in three.tolist())


@pytest.mark.parametrize("k", [0, 13])
def test_more_shots_than_queue_items_are_refused(k):
    with pytest.raises(psco.InputError, match=f"between 1 and the queue size 12, got {k}"):
        psco.select_shots(torch.rand(5, 12), k)


def test_overlap_is_the_fraction_of_shots_that_repeat_another_one():
    assert psco.shot_overlap(torch.tensor([[0, 1], [2, 3]]), 9) == 0
    assert psco.shot_overlap(torch.tensor([[0, 1], [1, 2]]), 9) == 0.25
    assert psco.shot_overlap(torch.tensor([[4], [4], [4], [4]]), 9) == 0.75


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("epsilon", [0.05, 0.002])
def test_the_plan_of_cosines_yet_to_be_computed_is_that_of_their_matrix(epsilon, dtype):
    random = torch.Generator().manual_seed(0)
    z, queue = (unit_rows(n, 7, random).to(dtype) for n in (5, 12))
    plan = psco.sinkhorn(Similarity(z, queue), epsilon, 3)
    expected = psco.sinkhorn(z @ queue.T, epsilon, 3)
    torch.testing.assert_close(
        plan.dense(), expected, rtol=2e-3 if epsilon < 0.05 else 1e-4, atol=0
    )
    for k in (1, 4):
        assert torch.equal(top_k(plan, k), top_k(expected, k))


def unit_rows(n: int, d: int, random: torch.Generator) -> torch.Tensor:
    rows = torch.randn(n, d, generator=random, dtype=torch.float64)
    return torch.nn.functional.normalize(rows, dim=1)


def test_similarities_over_epsilon_are_the_product_over_epsilon():
    random = torch.Generator().manual_seed(0)
    z, queue = (torch.rand(n, 7, generator=random, dtype=torch.float64) for n in (5, 12))
    torch.testing.assert_close(Similarity(z, queue).over(0.05), z @ queue.T / 0.05)


def test_one_shot_is_the_largest_entry_as_with_more_shots():
    plan = torch.rand(20, 50, generator=torch.Generator().manual_seed(0))
    assert torch.equal(psco.select_shots(plan, 1), psco.select_shots(plan, 3)[:, :1])


@given(
    st.integers(1, 5), st.sampled_from([1, 2, 7, 32, 33, 64]), st.sampled_from([64, 100, 640, 4096])
)
def test_the_largest_columns_are_those_of_a_full_sort(rows, k, columns):
    order = torch.Generator().manual_seed(rows * columns + k)
    scores = torch.stack([torch.randperm(columns, generator=order) for _ in range(rows)]).float()
    expected = scores.argsort(dim=1, descending=True)[:, :k]
    assert torch.equal(top_k(scores, k), expected)
    by_columns = scores.T.contiguous().T
    assert torch.equal(top_k(by_columns, k), expected)


def test_of_equal_scores_the_first_is_the_largest_one():
    scores = torch.zeros(2, 640)
    scores[1, [130, 140, 500]] = 1.0
    assert top_k(scores, 1).tolist() == [[0], [130]]
    assert top_k(scores.T.contiguous().T, 1).tolist() == [[0], [130]]
