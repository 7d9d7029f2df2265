"""Statistics of paired turns: medians, their 95 % intervals, ratios and growth slopes.

A turn measures every side once, back to back. Whatever slows the machine during a turn slows all
sides, so it cancels in a ratio taken within the turn. What is reported is the median of these
per-turn values with its interval. A noisy machine gives a wide interval, not a wrong number.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from psco.errors import InputError

CONFIDENCE = 0.95
FEWEST_TURNS = 6  # with 5, the smallest and largest value enclose the median in 94 % of cases only


@dataclass(frozen=True)
class Figure:
    """A measured number and how far it can be trusted.

    Parameters
    ----------
    value
        The median over the turns, or None if there is none.
    interval
        Of per-turn comparisons: the 95 % confidence interval of the median.
    spread
        Of absolute times and speeds: see `spread`. None where nothing was repeated.
    refusal
        Why there is no value, else empty.
    """

    value: float | None
    interval: tuple[float, float] | None = None
    spread: float | None = None
    refusal: str = ""

    @classmethod
    def missing(cls, reason: str) -> Figure:
        """Return a figure without a value."""
        return cls(None, refusal=reason)


def spread(values: Sequence[float]) -> float:
    """Return the inter-quartile range over the median, of positive numbers."""
    low, middle, high = np.percentile(values, [25, 50, 75])
    return float((high - low) / middle)


def absolute(values: Sequence[float]) -> Figure:
    """Return the median of times or speeds, with their spread.

    They get no interval: while a clock drifts, turns are not independent draws.
    """
    return Figure(statistics.median(values), spread=spread(values) if len(values) > 2 else None)


def median_interval(values: Sequence[float]) -> tuple[float, float]:
    """Return the 95 % confidence interval of a median, between two order statistics.

    Each value lies below the true median with probability 1/2, whatever the distribution. So the
    k-th smallest and k-th largest of n values enclose it unless fewer than k of them fall on one
    side: 1 - 2 P(Binomial(n, 1/2) < k). The largest such k is used, and the coverage is never
    below 95 %. Up to k - 1 interrupted turns cannot move an end beyond the undisturbed values.

    Raises
    ------
    InputError
        For fewer values than `FEWEST_TURNS`.
    """
    ordered = sorted(values)
    n = len(ordered)
    if n < FEWEST_TURNS:
        raise InputError(f"a 95 % interval of a median needs {FEWEST_TURNS} values, got {n}")
    k, tail = 0, 0.0  # tail: P(Binomial(n, 1/2) < k)
    while 1 - 2 * (tail + math.comb(n, k) / 2**n) >= CONFIDENCE:
        tail += math.comb(n, k) / 2**n
        k += 1
    return ordered[k - 1], ordered[n - k]


def per_turn(values: Sequence[float]) -> Figure:
    """Return the median of one value a turn with its interval; no value with too few turns."""
    if len(values) < FEWEST_TURNS:
        return Figure.missing(
            f"a 95 % interval needs at least {FEWEST_TURNS} turns, got {len(values)}"
        )
    return Figure(statistics.median(values), median_interval(values))


def ratio(upper: Sequence[float], lower: Sequence[float]) -> Figure:
    """Compare two sides: the median over the turns of upper / lower.

    Parameters
    ----------
    upper, lower
        One positive number a turn, in the same order.
    """
    return per_turn([a / b for a, b in zip(upper, lower, strict=True)])


def overhead(upper: Sequence[float], lower: Sequence[float]) -> Figure:
    """Return the median over the turns of upper / lower - 1."""
    return per_turn([a / b - 1 for a, b in zip(upper, lower, strict=True)])


def slope(sizes: Sequence[float], values: Sequence[float]) -> float:
    """Fit log(value) = slope · log(size) + constant by least squares; 1 is linear growth.

    Raises
    ------
    InputError
        If there are fewer than two different sizes.
    """
    if len(set(sizes)) < 2:
        raise InputError(f"a slope needs at least two different sizes, got {list(sizes)}")
    x, y = np.log(sizes), np.log(values)
    x = x - x.mean()
    return float(x @ y / (x @ x))


def growth_slope(sizes: Sequence[float], times: Sequence[Sequence[float]]) -> Figure:
    """Return the median over the turns of the log-log slope of time against size.

    Parameters
    ----------
    sizes
        (s,) sizes.
    times
        (s, turns) seconds.
    """
    return per_turn([slope(sizes, turn) for turn in zip(*times, strict=True)])
