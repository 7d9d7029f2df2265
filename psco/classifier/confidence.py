"""What a score is worth: probabilities by a temperature, and when to say "unknown".

Everything here is a function of arrays: scores (n, N) of n pictures for N classes, and the true
classes (n,) where they are known.
"""

from __future__ import annotations

import math

import numpy as np

from psco.errors import InputError

FALSE_REJECTIONS = 0.05  # share of genuine pictures that an automatic threshold may reject
# The logit by which a support stands out in its own class when nothing is known about the scores.
# A round number: PsCo's cosines on validation classes of the glyphs come to 12.6, one shot per
# class, in tasks of 5 and of 20 ways.
CONTRAST = 10.0
# Standard deviation of the logarithm of the temperature around the expected one. A few supports
# that are all classified well would else make every later prediction a certainty.
_SPREAD = 0.5
_ENOUGH = 8  # held-out pictures that tell mean and deviation
_ROUNDS, _POINTS, _RANGE = 5, 33, math.log(100.0)  # of the search for the temperature


def probabilities(scores: np.ndarray, temperature: float) -> np.ndarray:
    """Give softmax(scores / temperature), (n, N), safe for scores of any size."""
    logits = _logits(scores, temperature)
    weights = np.exp(logits)
    shares: np.ndarray = weights / weights.sum(axis=1, keepdims=True)
    return shares


def log_loss(scores: np.ndarray, truth: np.ndarray, temperature: float) -> float:
    """Give the mean of −log p(true class) under softmax(scores / temperature)."""
    logits = _logits(scores, temperature)
    own = np.take_along_axis(logits, truth[:, None], axis=1)[:, 0]
    return float((np.log(np.exp(logits).sum(axis=1)) - own).mean())


def default_temperature(scores: np.ndarray, truth: np.ndarray) -> float:
    """Guess a temperature from the scores of the supports themselves.

    By how much the own class stands out from the mean of the others, divided by `CONTRAST`; so it
    follows the scale of the scores, whatever the rule. 1 if no class stands out.
    """
    ways = scores.shape[1]
    if ways < 2:
        return 1.0
    own = np.take_along_axis(scores, truth[:, None], axis=1)[:, 0]
    others = (scores.sum(axis=1) - own) / (ways - 1)
    contrast = float((own - others).mean())
    return contrast / CONTRAST if contrast > 0 else 1.0


def fit_temperature(scores: np.ndarray, truth: np.ndarray, expected: float) -> float:
    """Find the temperature under which scores of held-out pictures have the least log loss.

    Parameters
    ----------
    scores, truth
        (n, N) scores of pictures that the classifier has not learnt from, and their classes (n,).
    expected
        Temperature > 0 to stay near to while n is small: its logarithm is the centre of a normal
        prior of deviation 0.5. Without pictures it is the result.

    Returns
    -------
    float
        Between a hundredth and a hundred times the expected one.
    """
    centre = middle = math.log(expected)

    def loss(log_temperature: float) -> float:
        prior = ((log_temperature - middle) / _SPREAD) ** 2 / 2
        return len(scores) * log_loss(scores, truth, math.exp(log_temperature)) + prior

    if len(scores) == 0:
        return expected
    # A grid around the best point so far, finer every round: no derivative, no start to choose,
    # and always an answer.
    width = _RANGE
    for _ in range(_ROUNDS):
        grid = np.linspace(
            max(centre - width, middle - _RANGE), min(centre + width, middle + _RANGE), _POINTS
        )
        centre = min(grid.tolist(), key=loss)
        width *= 4 / _POINTS
    return math.exp(centre)


def expected_calibration_error(
    probabilities: np.ndarray, correct: np.ndarray, bins: int = 15
) -> float:
    """Compare how sure a classifier is with how often it is right.

    Parameters
    ----------
    probabilities
        (n,) probability of the predicted class, in [0, 1].
    correct
        (n,) whether the prediction is right.
    bins
        Number of equally wide intervals of the probability.

    Returns
    -------
    float
        |mean probability − share of right ones| of every interval, averaged with the number of
        predictions in it as the weight: 0 is perfect, 1 the worst.

    Raises
    ------
    InputError
        If there are no predictions, the lengths differ, or a probability is none.
    """
    number, sure, right = reliability(probabilities, correct, bins)
    return float(np.abs(sure - right) @ number / number.sum())


def reliability(
    probabilities: np.ndarray, correct: np.ndarray, bins: int = 15
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Compare how sure a classifier is with how often it is right, for degrees of sureness.

    Parameters
    ----------
    probabilities, correct, bins
        As in `expected_calibration_error`.

    Returns
    -------
    tuple
        (bins,) number of predictions in each interval, their mean probability, and the share of
        right ones among them; the latter two are 0 where there are none.

    Raises
    ------
    InputError
        If there are no predictions, the lengths differ, or a probability is none.
    """
    sure, right = np.asarray(probabilities, float), np.asarray(correct, float)
    if sure.ndim != 1 or sure.shape != right.shape or len(sure) == 0:
        raise InputError(
            f"one probability and one verdict per prediction are needed, not arrays of shape "
            f"{sure.shape} and {right.shape}"
        )
    if not (sure.min() >= 0 and sure.max() <= 1) or bins < 1:
        raise InputError(
            f"probabilities lie in [0, 1] and bins is at least 1; these are from {sure.min()} to "
            f"{sure.max()}, and bins is {bins}"
        )
    interval = np.minimum((sure * bins).astype(int), bins - 1)
    number = np.bincount(interval, minlength=bins)
    each = np.maximum(number, 1)
    means = [np.bincount(interval, values, minlength=bins) / each for values in (sure, right)]
    return number, means[0], means[1]


def auroc(genuine: np.ndarray, foreign: np.ndarray) -> float:
    """Give the area under the ROC curve of a score.

    Parameters
    ----------
    genuine, foreign
        (n,) and (m,) scores, that ought to be larger for genuine pictures.

    Returns
    -------
    float
        The share of pairs in which the genuine score is the larger one, equals counting half:
        0.5 is chance, 1 perfect.

    Raises
    ------
    InputError
        If there are none of a kind.
    """
    if len(genuine) == 0 or len(foreign) == 0:
        raise InputError(
            f"the area under the ROC curve needs scores of both kinds, not {len(genuine)} genuine "
            f"and {len(foreign)} foreign ones"
        )
    order = np.sort(foreign)
    below = np.searchsorted(order, genuine, side="left")
    not_above = np.searchsorted(order, genuine, side="right")
    return float((below + not_above).sum() / (2 * len(genuine) * len(foreign)))


def rejection_threshold(
    genuine: np.ndarray, expected: np.ndarray | None = None, share: float = FALSE_REJECTIONS
) -> float:
    """Choose the likeness below which a picture belongs to no class.

    Parameters
    ----------
    genuine
        (n,) likeness of held-out pictures to the nearest class; see `Task.likeness`.
    expected
        Likenesses to be expected of such pictures, used while n is too small.
    share
        Of pictures like these that may fall below, in (0, 1).

    Returns
    -------
    float
        For n >= 1 / share − 1 the value that this share of further pictures is expected to fall
        below, whatever the distribution: the k-th smallest of n with k = share (n + 1), rounded
        down. For fewer, that of a normal distribution: mean − t s sqrt(1 + 1 / n), with the
        quantile t of Student's. For fewer than 8 that is vague, and the k-th smallest of both
        kinds together is taken, if there are expected ones.

    Raises
    ------
    InputError
        If there are fewer than two pictures and nothing is expected.
    """
    values = np.sort(np.asarray(genuine, float))
    place = _place(len(values), share)
    if len(values) < _ENOUGH and expected is not None:
        values = np.sort(np.concatenate([values, expected]))
        place = _place(len(values), share)
    if place > 0:
        return float(values[place - 1])
    if len(values) < 2:
        raise InputError(
            f"reject_below='auto' needs two supports of a class to judge by, or a calibrated run; "
            f"there are {len(values)} to leave out; give a probability such as 0.5"
        )
    # Slow to import, and seldom needed.
    from scipy.stats import t  # type: ignore[import-untyped]

    n = len(values)
    quantile = float(t.ppf(1 - share, n - 1))
    return float(values.mean() - quantile * values.std(ddof=1) * math.sqrt(1 + 1 / n))


def _place(number: int, share: float) -> int:
    return math.floor(share * (number + 1) + 1e-9)  # 0.05 * 20 is to count as 1


def _logits(scores: np.ndarray, temperature: float) -> np.ndarray:
    shifted: np.ndarray = (scores - scores.max(axis=1, keepdims=True)) / temperature
    return shifted
