"""What repeated measurements say: medians, spreads, ratios that may be refused, slopes."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from psco.errors import InputError

SPREAD_LIMIT = 0.15  # above it a ratio says more about the machine's other work than about ours
FEWEST = 3  # repeats that tell anything about the spread


@dataclass(frozen=True)
class Figure:
    """A number with how far it can be trusted.

    Parameters
    ----------
    value
        The median, or None if it is refused.
    spread
        See `spread`; None where nothing was repeated.
    refusal
        Why there is no value, else empty.
    """

    value: float | None
    spread: float | None = None
    refusal: str = ""

    @classmethod
    def missing(cls, reason: str) -> Figure:
        """Make a figure that could not be measured."""
        return cls(None, None, reason)


def spread(values: Sequence[float]) -> float:
    """Give the inter-quartile range over the median, of positive numbers.

    It ignores the quarter of the repeats at either end, so that one interruption does not spoil a
    measurement, and grows with anything that disturbs half of them. Quartiles are interpolated
    linearly.
    """
    low, middle, high = np.percentile(values, [25, 50, 75])
    return float((high - low) / middle)


def typical(values: Sequence[float]) -> Figure:
    """Give the median of repeated measurements, whatever their spread."""
    return Figure(statistics.median(values), spread(values) if len(values) >= FEWEST else None)


def ratio(upper: Sequence[float], lower: Sequence[float], limit: float = SPREAD_LIMIT) -> Figure:
    """Compare two sides that took turns: the median of upper / lower, repeat by repeat.

    Neighbours in time are compared with each other, so what slows the machine for a while slows
    both. The spread is the greatest of the three: of either side and of their ratio. A machine
    that others use may shift the ratio as well as scatter it, as they take cores from the side
    that uses more of them; therefore steady ratios of unsteady times are refused too.

    Parameters
    ----------
    upper, lower
        As many positive numbers on both sides, in the order of the repeats.
    limit
        The greatest spread at which the ratio is given.
    """
    ratios = [a / b for a, b in zip(upper, lower, strict=True)]
    return judged(statistics.median(ratios), [upper, lower, ratios], limit)


def judged(
    value: float, evidence: Sequence[Sequence[float]], limit: float = SPREAD_LIMIT
) -> Figure:
    """Give a value, unless one of the measurements it rests on spreads more than the limit.

    Parameters
    ----------
    value
        What was concluded.
    evidence
        The repeats of each measurement, positive numbers; with fewer than three of them nobody
        can tell how they spread, and the value is refused too.
    limit
        The greatest spread that is allowed.
    """
    repeats = min(len(values) for values in evidence)
    if repeats < FEWEST:
        return Figure.missing(f"repeats: {repeats}, too few to tell a spread; use {FEWEST} or more")
    greatest = max(spread(values) for values in evidence)
    if greatest > limit:
        reason = f"spread {100 * greatest:.0f} %: too noisy, run again on a quiet machine"
        return Figure(None, greatest, reason)
    return Figure(value, greatest)


def slope(sizes: Sequence[float], values: Sequence[float]) -> float:
    """Fit log(value) = slope · log(size) + constant by least squares; 1 is linear growth.

    Raises
    ------
    InputError
        If there are fewer than two different sizes.
    """
    if len(set(sizes)) < 2:
        raise InputError(f"a slope needs two different sizes at least, not {list(sizes)}")
    x, y = np.log(sizes), np.log(values)
    x = x - x.mean()
    return float(x @ y / (x @ x))


def growth_slope(
    sizes: Sequence[float], times: Sequence[Sequence[float]], limit: float = SPREAD_LIMIT
) -> Figure:
    """Give the median over the repeats of the log-log slope of time against size.

    Parameters
    ----------
    sizes
        (s,) sizes.
    times
        (s, repeats) seconds; the sizes of a repeat were measured one after the other.
    limit
        The slope is refused if the times of one size spread more than this. The spread of the
        slopes themselves would not do: of a time that does not grow at all, their median is 0.
    """
    slopes = [slope(sizes, repeat) for repeat in zip(*times, strict=True)]
    return judged(statistics.median(slopes), times, limit)
