"""Look-alikes: similar pictures, and copies of which one is kept."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from psco.data.duplicates import Pair, graded_groups


class Similar(NamedTuple):
    """A picture by number, and its similarity in [0, 1]."""

    number: int
    similarity: float


class Copies(NamedTuple):
    """Pictures that are almost the same.

    Parameters
    ----------
    keep
        The one to keep: one with a label, else the largest file, else the first.
    others
        The others.
    similarity
        The lowest similarity in [0, 1] of two pictures that connects the group.
    """

    keep: int
    others: tuple[int, ...]
    similarity: float


def most_similar(vectors: np.ndarray, vector: np.ndarray, count: int) -> list[Similar]:
    """Return the rows of ``vectors`` (n, d) most similar to a vector (d,), all of unit length."""
    cosines = np.clip(vectors @ vector, 0.0, 1.0)
    order = np.argsort(-cosines, kind="stable")[:count]
    return [Similar(int(row), float(cosines[row])) for row in order]


def group_copies(pairs: list[Pair], sizes: np.ndarray, labelled: np.ndarray) -> list[Copies]:
    """Return the groups that pairs of near-duplicates connect, the most similar first.

    Parameters
    ----------
    pairs
        From `near_duplicates`.
    sizes, labelled
        (n,) bytes of the files, and whether the pictures have labels.
    """
    found = []
    for group, similarity in graded_groups(pairs):
        keep = max(group, key=lambda number: (labelled[number], sizes[number], -number))
        others = tuple(number for number in group if number != keep)
        found.append(Copies(keep, others, similarity))
    return found
