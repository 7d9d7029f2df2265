"""Temperatures, calibration error and thresholds, as functions of arrays."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from psco.classifier.confidence import (
    EXPECTED_LOGIT,
    default_temperature,
    fit_temperature,
    log_loss,
    probabilities,
    rejection_threshold,
)
from psco.classifier.metrics import auroc, expected_calibration_error, reliability
from psco.errors import InputError


def draws(scores: np.ndarray, temperature: float, seed: int = 0) -> np.ndarray:
    """Draw true classes that have exactly the probabilities of a temperature."""
    noise = np.random.default_rng(seed).gumbel(size=scores.shape)
    return (scores / temperature + noise).argmax(axis=1)


@given(arrays(float, (4, 3), elements=st.floats(-1e6, 1e6)), st.floats(1e-3, 1e3))
def test_probabilities_are_shares_in_the_order_of_the_scores(scores, temperature):
    shares = probabilities(scores, temperature)
    assert np.allclose(shares.sum(axis=1), 1)
    assert (
        shares.max(axis=1) == np.take_along_axis(shares, scores.argmax(1)[:, None], 1)[:, 0]
    ).all()


def test_the_log_loss_is_that_of_the_definition():
    scores, truth = np.array([[1.0, 0.0], [0.0, 3.0]]), np.array([0, 0])
    expected = -(math.log(1 / (1 + math.exp(-2))) + math.log(1 / (1 + math.exp(6)))) / 2
    assert log_loss(scores, truth, 0.5) == pytest.approx(expected)


@pytest.mark.parametrize("temperature", [0.05, 0.3, 2.0])
def test_the_temperature_that_made_the_labels_is_found(temperature):
    scores = np.random.default_rng(1).normal(0, 2 * temperature, (4000, 5))
    found = fit_temperature(scores, draws(scores, temperature), expected=3 * temperature)
    assert found == pytest.approx(temperature, rel=0.1)


def test_the_search_finds_the_least_loss_of_a_fine_grid():
    scores = np.random.default_rng(2).normal(size=(60, 4))
    truth = draws(scores, 0.7)
    found = fit_temperature(scores, truth, 1.0)

    def loss(temperature: float) -> float:
        return 60 * log_loss(scores, truth, temperature) + 2 * math.log(temperature) ** 2

    best = min(np.geomspace(0.01, 100, 20001), key=loss)
    assert found == pytest.approx(best, rel=1e-3)


def test_without_pictures_the_expected_temperature_is_used():
    assert fit_temperature(np.empty((0, 5)), np.empty(0, dtype=int), 0.09) == 0.09


def test_a_few_successes_do_not_make_certainty():
    scores = np.array([[0.6, 0.1], [0.2, 0.7]])
    assert 0.05 < fit_temperature(scores, np.array([0, 1]), 0.1) <= 0.1


def test_hopeless_scores_give_a_finite_temperature():
    scores = np.array([[1e6, -1e6]] * 50)
    found = fit_temperature(scores, np.ones(50, dtype=int), 1.0)
    assert found == pytest.approx(100)
    assert np.isfinite(log_loss(scores, np.ones(50, dtype=int), found))


def test_the_guessed_temperature_follows_the_scale_of_the_scores():
    scores, truth = np.array([[0.9, 0.1, 0.3], [0.2, 0.8, 0.0]]), np.array([0, 1])
    guess = default_temperature(scores, truth)
    assert guess == pytest.approx((0.7 + 0.7) / 2 / EXPECTED_LOGIT)
    assert default_temperature(50 * scores, truth) == pytest.approx(50 * guess)
    assert default_temperature(-scores, truth) == 1.0
    assert default_temperature(np.ones((3, 1)), np.zeros(3, dtype=int)) == 1.0


def test_the_calibration_error_is_zero_for_an_honest_classifier_and_one_for_the_worst():
    assert expected_calibration_error(np.ones(4), np.ones(4)) == 0
    assert expected_calibration_error(np.ones(4), np.zeros(4)) == 1
    sure = np.array([0.9, 0.9, 0.9, 0.9, 0.6])
    right = np.array([1, 1, 1, 0, 1])
    # 4/5 of |0.9 - 0.75| and 1/5 of |0.6 - 1|
    assert expected_calibration_error(sure, right, bins=2) == pytest.approx(
        abs(4.2 - 4) / 5
    )  # one bin holds all of them
    assert expected_calibration_error(sure, right, bins=5) == pytest.approx(0.8 * 0.15 + 0.2 * 0.4)


@given(
    arrays(float, 30, elements=st.floats(0, 1)),
    arrays(bool, 30),
    st.integers(1, 40),
)
def test_the_calibration_error_lies_between_zero_and_one(sure, right, bins):
    assert 0 <= expected_calibration_error(sure, right, bins) <= 1


@pytest.mark.parametrize(
    ("sure", "right", "bins", "words"),
    [
        ([], [], 15, "shape"),
        ([0.5], [1, 0], 15, r"\(1,\) and \(2,\)"),
        ([1.5], [1], 15, "1.5"),
        ([math.nan], [1], 15, "nan"),
        ([0.5], [1], 0, "at least 1, got 0"),
    ],
)
def test_the_calibration_error_refuses_what_is_no_probability(sure, right, bins, words):
    with pytest.raises(InputError, match=words):
        expected_calibration_error(np.array(sure), np.array(right), bins)


def test_reliability_counts_and_averages_every_interval():
    sure, right = np.array([0.1, 0.2, 0.95, 1.0]), np.array([False, True, True, True])
    number, means, shares = reliability(sure, right, bins=2)
    assert number.tolist() == [2, 2]
    assert means == pytest.approx([0.15, 0.975])
    assert shares == pytest.approx([0.5, 1.0])
    number, means, shares = reliability(sure[:1], right[:1], bins=4)
    assert (number.tolist(), means.tolist(), shares.tolist()) == (
        [1, 0, 0, 0],
        [0.1, 0, 0, 0],
        [0] * 4,
    )


@given(
    arrays(float, st.integers(1, 12), elements=st.integers(0, 5)),
    arrays(float, st.integers(1, 12), elements=st.integers(0, 5)),
)
def test_the_area_under_the_roc_curve_is_the_share_of_pairs_in_order(genuine, foreign):
    pairs = [(g > f) + 0.5 * (g == f) for g in genuine for f in foreign]
    assert auroc(genuine, foreign) == pytest.approx(np.mean(pairs))


def test_the_area_under_the_roc_curve_needs_both_kinds():
    with pytest.raises(InputError, match="genuine and foreign scores, got 2 and 0"):
        auroc(np.zeros(2), np.zeros(0))


@pytest.mark.parametrize("number", [19, 25, 60, 500])
def test_a_twentieth_of_further_pictures_falls_below_the_threshold(number):
    random = np.random.default_rng(number)
    rates = []
    for _ in range(400):
        threshold = rejection_threshold(random.exponential(size=number))
        rates.append(1 - math.exp(-threshold))  # the distribution function, exactly
    assert 0.03 < np.mean(rates) < 0.055


@pytest.mark.parametrize("number", [2, 5, 18])
def test_a_few_pictures_give_the_bound_of_a_normal_distribution(number):
    random = np.random.default_rng(number)
    below = [random.normal() < rejection_threshold(random.normal(size=number)) for _ in range(4000)]
    assert np.mean(below) == pytest.approx(0.05, abs=0.012)


def test_expected_values_stand_in_for_pictures_that_are_too_few():
    expected = np.arange(1, 40) / 40
    assert rejection_threshold(np.empty(0), expected) == pytest.approx(0.05)
    assert rejection_threshold(np.array([0.02]), expected) == pytest.approx(0.025)
    assert rejection_threshold(np.full(8, 0.7), expected) == pytest.approx(0.7)
    assert rejection_threshold(np.full(19, 0.7), expected) == 0.7


@pytest.mark.parametrize("number", [0, 1])
def test_a_threshold_from_nothing_is_refused(number):
    with pytest.raises(InputError, match=f"got {number} supports to leave out"):
        rejection_threshold(np.zeros(number))
