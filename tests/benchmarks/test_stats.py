"""Paired turns recover true ratios on a machine whose clock drifts, and say how sure they are."""

from __future__ import annotations

import math
import statistics

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.timing.stats import (
    FEWEST_TURNS,
    Figure,
    absolute,
    growth_slope,
    median_interval,
    overhead,
    per_turn,
    ratio,
    slope,
    spread,
)
from psco.errors import InputError

positive = st.floats(0.01, 100)
DRIFTS = {  # speed of the clock over a run from 0 to 1; all of them change by 25 %
    "falling": lambda t: 1 - 0.25 * t,
    "rising": lambda t: 0.75 + 0.25 * t,
    "one drop": lambda t: np.where(t < 0.5, 1.0, 0.75),
    "wave": lambda t: 0.875 + 0.125 * np.sin(2 * math.pi * t),
}


def simulate(truth: float, drift: str, seed: int, turns: int = 12) -> tuple[np.ndarray, np.ndarray]:
    """Time sides that truly take ``truth`` and 1, in the order A B, B A, ...: (turns,) each."""
    random = np.random.default_rng(seed)
    moments = np.linspace(0, 1, 2 * turns)
    seconds = random.normal(1, 0.01, 2 * turns) / DRIFTS[drift](moments)
    interrupted = random.random(2 * turns) < 0.08
    seconds[interrupted] *= random.uniform(1.2, 3, interrupted.sum())
    first, second = seconds[0::2], seconds[1::2]
    even = np.arange(turns) % 2 == 0
    return truth * np.where(even, first, second), np.where(even, second, first)


# ------------------------------------------------------------------------------------ simulations


@pytest.mark.parametrize("truth", [0.97, 1.11, 4.87])
@pytest.mark.parametrize("drift", DRIFTS)
def test_the_interval_holds_the_true_ratio_although_the_clock_drifts(drift, truth):
    found = [ratio(*simulate(truth, drift, seed)) for seed in range(300)]
    covered = [f.interval[0] <= truth <= f.interval[1] for f in found]
    assert np.mean(covered) >= 0.95 - 0.03  # three standard errors of a simulated coverage
    assert np.median([abs(f.value / truth - 1) for f in found]) < 0.01


@pytest.mark.parametrize("drift", ["falling", "rising", "one drop"])
def test_medians_of_sides_measured_one_after_the_other_miss_the_true_ratio(drift):
    truth, turns = 1.03, 12
    errors = []
    for seed in range(50):
        random = np.random.default_rng(seed)
        speed = DRIFTS[drift](np.linspace(0, 1, 2 * turns))
        seconds = random.normal(1, 0.01, 2 * turns) / speed
        unpaired = statistics.median(truth * seconds[:turns]) / statistics.median(seconds[turns:])
        errors.append(abs(unpaired / truth - 1))
    assert min(errors) > 0.08


@pytest.mark.parametrize("drift", DRIFTS)
def test_the_paired_interval_is_narrower_than_that_of_two_separate_medians(drift):
    upper, lower = simulate(1.03, drift, seed=1, turns=24)
    low, high = ratio(upper, lower).interval
    (upper_low, upper_high), (lower_low, lower_high) = map(median_interval, (upper, lower))
    assert high - low < 0.5 * (upper_high / lower_low - upper_low / lower_high)


# ------------------------------------------------------------------------------------- properties


@given(st.lists(st.tuples(positive, positive, positive), min_size=FEWEST_TURNS, max_size=40))
def test_whatever_slows_both_sides_of_a_turn_alike_changes_nothing(turns):
    upper, lower, slowdown = np.array(turns).T
    plain, slowed = ratio(upper, lower), ratio(upper * slowdown, lower * slowdown)
    assert slowed.value == pytest.approx(plain.value)
    assert slowed.interval == pytest.approx(plain.interval)


@given(st.lists(positive, min_size=FEWEST_TURNS, max_size=40))
def test_the_interval_encloses_the_median_and_lies_within_the_values(values):
    low, high = median_interval(values)
    assert min(values) <= low <= statistics.median(values) <= high <= max(values)


@given(st.lists(positive, min_size=12, max_size=12), st.lists(positive, min_size=2, max_size=2))
def test_two_interrupted_turns_of_twelve_cannot_push_the_interval_beyond_the_others(values, other):
    low, high = median_interval([*values[:10], *(1e3 * value for value in other)])
    assert min(values[:10]) <= low <= high <= max(values[:10])


@pytest.mark.parametrize("turns", [6, 7, 12, 25])
def test_the_interval_covers_the_median_of_any_distribution_in_95_percent(turns):
    random = np.random.default_rng(0)
    draws = random.lognormal(0, 1, (4000, turns))  # skewed, with median 1
    covered = [low <= 1 <= high for low, high in map(median_interval, draws)]
    assert 0.94 < np.mean(covered) < 0.995


# ------------------------------------------------------------------------------------------ cases


def test_a_ratio_is_the_median_over_the_turns_whatever_the_sides_do():
    upper = [20.0, 26.0, 32.0, 20.0, 40.0, 24.0]
    found = ratio(upper, [10.0, 13.0, 16.0, 10.0, 20.0, 12.0])
    assert found == Figure(2.0, (2.0, 2.0))


def test_a_noisy_ratio_is_not_refused_but_has_a_wide_interval():
    found = ratio([1.0, 2.0, 3.0, 4.0, 5.0, 6.0], [1.0] * 6)
    assert found == Figure(3.5, (1.0, 6.0))


def test_an_overhead_is_the_ratio_less_one():
    found = overhead([11.0, 22.0, 33.0, 11.0, 22.0, 33.0], [10.0, 20.0, 30.0] * 2)
    assert found.value == pytest.approx(0.1)
    assert found.interval == pytest.approx((0.1, 0.1))


def test_five_turns_are_too_few_for_a_ratio_but_not_for_a_time():
    found = ratio([2.0] * 5, [1.0] * 5)
    assert found.value is None
    assert found.interval is None
    assert found.refusal == "a 95 % interval needs at least 6 turns, got 5"
    assert absolute([2.0, 4.0]) == Figure(3.0)
    assert per_turn([2.0] * 6).value == 2.0


def test_an_interval_of_too_few_values_is_an_error():
    with pytest.raises(InputError, match="needs 6 values, got 5"):
        median_interval([1.0] * 5)


def test_the_spread_is_the_inter_quartile_range_over_the_median():
    assert spread([8.0, 9.0, 10.0, 11.0, 12.0]) == pytest.approx(0.2)
    assert spread([10.0, 10.0, 10.0, 10.0, 500.0]) == 0
    assert absolute([8.0, 9.0, 10.0, 11.0, 12.0]).spread == pytest.approx(0.2)


@pytest.mark.parametrize("power", [0.0, 0.5, 1.0, 2.0])
def test_the_slope_of_a_power_law_is_its_power(power):
    sizes = [4096, 16384, 65536]
    assert slope(sizes, [3e-4 * size**power for size in sizes]) == pytest.approx(power)


def test_a_growth_slope_is_taken_within_each_turn():
    sizes, slowdowns = [1, 10, 100], [1.0, 3.0, 0.5, 2.0, 1.0, 7.0]
    times = [[slowdown * size**0.7 for slowdown in slowdowns] for size in sizes]
    found = growth_slope(sizes, times)
    assert found.value == pytest.approx(0.7)
    assert found.interval == pytest.approx((0.7, 0.7))


def test_a_slope_of_one_size_is_an_error():
    with pytest.raises(InputError, match=r"at least two different sizes, got \[5, 5\]"):
        slope([5, 5], [1.0, 2.0])
