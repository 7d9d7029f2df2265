"""From scores to decisions: the temperature of the probabilities and the rejection threshold.

All functions work on arrays: scores (n, N) of n images for N classes, and true classes (n,).
"""

from __future__ import annotations

import math

import numpy as np

from psco.errors import InputError

FALSE_REJECTION_RATE = 0.05  # fraction of genuine images that an automatic threshold may reject
# Assumed logit of a support for its own class, where nothing else is known about the scores. A
# round number: PsCo's cosines on validation classes of the glyphs come to 12.6, one shot per
# class, in tasks of 5 and of 20 ways.
EXPECTED_LOGIT = 10.0
# Standard deviation of the prior on the log temperature. Without a prior, a few supports that are
# all classified correctly would make every later prediction a certainty.
_PRIOR_STD = 0.5
_ENOUGH = 8  # held-out images from which a mean and a standard deviation can be estimated
_ROUNDS, _GRID, _RANGE = 5, 33, math.log(100.0)  # of the search for the temperature


def probabilities(scores: np.ndarray, temperature: float) -> np.ndarray:
    """Return softmax(scores / temperature), (n, N), without overflow."""
    weights = np.exp(_logits(scores, temperature))
    fractions: np.ndarray = weights / weights.sum(axis=1, keepdims=True)
    return fractions


def log_loss(scores: np.ndarray, truth: np.ndarray, temperature: float) -> float:
    """Return the mean of −log p(true class) under softmax(scores / temperature)."""
    logits = _logits(scores, temperature)
    own = np.take_along_axis(logits, truth[:, None], axis=1)[:, 0]
    return float((np.log(np.exp(logits).sum(axis=1)) - own).mean())


def default_temperature(scores: np.ndarray, truth: np.ndarray) -> float:
    """Estimate a temperature from the scores of the supports themselves.

    The margin of the own class over the mean of the others, divided by `EXPECTED_LOGIT`, so that
    it follows the scale of the scores under any rule; 1 if the margin is not positive.
    """
    ways = scores.shape[1]
    if ways < 2:
        return 1.0
    own = np.take_along_axis(scores, truth[:, None], axis=1)[:, 0]
    others = (scores.sum(axis=1) - own) / (ways - 1)
    margin = float((own - others).mean())
    return margin / EXPECTED_LOGIT if margin > 0 else 1.0


def fit_temperature(scores: np.ndarray, truth: np.ndarray, expected: float) -> float:
    """Return the temperature that minimises the log loss of held-out images.

    Parameters
    ----------
    scores, truth
        (n, N) scores of images that the classifier was not fitted on, and their classes (n,).
    expected
        Prior temperature, > 0. The log temperature has a normal prior with this centre and a
        standard deviation of 0.5, so the result stays close to it while n is small. With n = 0 it
        is the result.

    Returns
    -------
    float
        Between 1/100 and 100 times the expected temperature.
    """
    if len(scores) == 0:
        return expected
    prior = centre = math.log(expected)

    def loss(log_temperature: float) -> float:
        penalty = ((log_temperature - prior) / _PRIOR_STD) ** 2 / 2
        return len(scores) * log_loss(scores, truth, math.exp(log_temperature)) + penalty

    # A grid around the best value so far, refined in every round: it needs neither a derivative
    # nor a starting value, and cannot fail to converge.
    width = _RANGE
    for _ in range(_ROUNDS):
        grid = np.linspace(
            max(centre - width, prior - _RANGE), min(centre + width, prior + _RANGE), _GRID
        )
        centre = min(grid.tolist(), key=loss)
        width *= 4 / _GRID
    return math.exp(centre)


def rejection_threshold(
    genuine: np.ndarray, expected: np.ndarray | None = None, rate: float = FALSE_REJECTION_RATE
) -> float:
    """Return the similarity below which an image belongs to none of the classes.

    Parameters
    ----------
    genuine
        (n,) similarities of held-out images to the nearest class; see `Model.similarity`.
    expected
        Similarities that such images are expected to have, used while n < 8.
    rate
        Fraction of genuine images that may be rejected, in (0, 1).

    Returns
    -------
    float
        For n >= 1 / rate − 1, the k-th smallest of the n similarities with k = rate (n + 1),
        rounded down: whatever the distribution, this fraction of further images is expected to be
        below it. For smaller n, the bound of a normal distribution,
        mean − t · std · sqrt(1 + 1/n), with Student's quantile t. For n < 8 that bound is vague,
        and the k-th smallest of observed and expected similarities together is used if expected
        ones are given.

    Raises
    ------
    InputError
        If n < 2 and no similarities are expected.
    """
    values = np.sort(np.asarray(genuine, float))
    rank = _rank(len(values), rate)
    if len(values) < _ENOUGH and expected is not None:
        values = np.sort(np.concatenate([values, expected]))
        rank = _rank(len(values), rate)
    if rank > 0:
        return float(values[rank - 1])
    if len(values) < 2:
        raise InputError(
            f"reject_below='auto' requires a class with two supports or a calibrated run, got "
            f"{len(values)} supports to leave out; pass a probability such as 0.5"
        )
    # Slow to import and rarely needed.
    from scipy.stats import t  # type: ignore[import-untyped]

    n = len(values)
    quantile = float(t.ppf(1 - rate, n - 1))
    return float(values.mean() - quantile * values.std(ddof=1) * math.sqrt(1 + 1 / n))


def _rank(number: int, rate: float) -> int:
    return math.floor(rate * (number + 1) + 1e-9)  # 0.05 * 20 must count as 1


def _logits(scores: np.ndarray, temperature: float) -> np.ndarray:
    shifted: np.ndarray = (scores - scores.max(axis=1, keepdims=True)) / temperature
    return shifted
