"""Temperatures and rejection thresholds, as functions of arrays."""

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
from psco.errors import InputError


def draws(scores: np.ndarray, temperature: float, seed: int = 0) -> np.ndarray:
    """Draw true classes that have exactly the probabilities of a temperature."""
    noise = np.random.default_rng(seed).gumbel(size=scores.shape)
    return (scores / temperature + noise).argmax(axis=1)


@given(arrays(float, (4, 3), elements=st.floats(-1e6, 1e6)), st.floats(1e-3, 1e3))
def test_probabilities_sum_to_one_and_have_the_order_of_the_scores(scores, temperature):
    chances = probabilities(scores, temperature)
    assert np.allclose(chances.sum(axis=1), 1)
    assert (
        chances.max(axis=1) == np.take_along_axis(chances, scores.argmax(1)[:, None], 1)[:, 0]
    ).all()


def test_the_log_loss_follows_its_definition():
    scores, truth = np.array([[1.0, 0.0], [0.0, 3.0]]), np.array([0, 0])
    expected = -(math.log(1 / (1 + math.exp(-2))) + math.log(1 / (1 + math.exp(6)))) / 2
    assert log_loss(scores, truth, 0.5) == pytest.approx(expected)


@pytest.mark.parametrize("temperature", [0.05, 0.3, 2.0])
def test_the_temperature_that_generated_the_labels_is_recovered(temperature):
    scores = np.random.default_rng(1).normal(0, 2 * temperature, (4000, 5))
    found = fit_temperature(scores, draws(scores, temperature), expected=3 * temperature)
    assert found == pytest.approx(temperature, rel=0.1)


def test_the_search_finds_the_minimum_of_a_fine_grid():
    scores = np.random.default_rng(2).normal(size=(60, 4))
    truth = draws(scores, 0.7)
    found = fit_temperature(scores, truth, 1.0)

    def loss(temperature: float) -> float:
        return 60 * log_loss(scores, truth, temperature) + 2 * math.log(temperature) ** 2

    best = min(np.geomspace(0.01, 100, 20001), key=loss)
    assert found == pytest.approx(best, rel=1e-3)


def test_without_held_out_images_the_expected_temperature_is_used():
    assert fit_temperature(np.empty((0, 5)), np.empty(0, dtype=int), 0.09) == 0.09


def test_a_few_correct_predictions_keep_the_temperature_near_the_expected_one():
    scores = np.array([[0.6, 0.1], [0.2, 0.7]])
    assert 0.05 < fit_temperature(scores, np.array([0, 1]), 0.1) <= 0.1


def test_scores_that_are_always_wrong_give_a_finite_temperature():
    scores = np.array([[1e6, -1e6]] * 50)
    found = fit_temperature(scores, np.ones(50, dtype=int), 1.0)
    assert found == pytest.approx(100)
    assert np.isfinite(log_loss(scores, np.ones(50, dtype=int), found))


def test_the_default_temperature_scales_with_the_scores():
    scores, truth = np.array([[0.9, 0.1, 0.3], [0.2, 0.8, 0.0]]), np.array([0, 1])
    guess = default_temperature(scores, truth)
    assert guess == pytest.approx((0.7 + 0.7) / 2 / EXPECTED_LOGIT)
    assert default_temperature(50 * scores, truth) == pytest.approx(50 * guess)
    assert default_temperature(-scores, truth) == 1.0
    assert default_temperature(np.ones((3, 1)), np.zeros(3, dtype=int)) == 1.0


@pytest.mark.parametrize("number", [19, 25, 60, 500])
def test_five_percent_of_new_images_fall_below_the_threshold(number):
    random = np.random.default_rng(number)
    rates = []
    for _ in range(400):
        threshold = rejection_threshold(random.exponential(size=number))
        rates.append(1 - math.exp(-threshold))  # the distribution function, exactly
    assert 0.03 < np.mean(rates) < 0.055


@pytest.mark.parametrize("number", [2, 5, 18])
def test_a_few_images_give_the_bound_of_a_normal_distribution(number):
    random = np.random.default_rng(number)
    below = [random.normal() < rejection_threshold(random.normal(size=number)) for _ in range(4000)]
    assert np.mean(below) == pytest.approx(0.05, abs=0.012)


def test_expected_similarities_are_used_while_there_are_few_images():
    expected = np.arange(1, 40) / 40
    assert rejection_threshold(np.empty(0), expected) == pytest.approx(0.05)
    assert rejection_threshold(np.array([0.02]), expected) == pytest.approx(0.025)
    assert rejection_threshold(np.full(8, 0.7), expected) == pytest.approx(0.7)
    assert rejection_threshold(np.full(19, 0.7), expected) == 0.7


@pytest.mark.parametrize("number", [0, 1])
def test_a_threshold_without_data_is_rejected(number):
    with pytest.raises(InputError, match=f"got {number} supports to leave out"):
        rejection_threshold(np.zeros(number))
