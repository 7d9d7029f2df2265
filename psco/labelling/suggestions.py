"""Which pictures to label next: typical ones first, then uncertain ones and far ones.

Without labels, the most typical picture of every cluster tells most about a pool of pictures. Once
every cluster has a label, three kinds take turns: pictures typical of smaller clusters, pictures
between two classes, and pictures far from every class.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from itertools import chain, islice, zip_longest
from typing import Literal, NamedTuple

import numpy as np

from psco.labelling.clusters import typicality

Reason = Literal["typical", "uncertain", "far"]
Clustering = Callable[[int], np.ndarray]  # number of clusters -> the cluster (n,) of each picture


class Suggestion(NamedTuple):
    """A picture to label, by number, and the reason."""

    number: int
    reason: Reason


class Pool(NamedTuple):
    """The pictures to choose from.

    Parameters
    ----------
    vectors
        (n, d) of unit length.
    clustering
        Returns clusters of the vectors.
    labelled
        (n,) bool: pictures with a label.
    available
        (n,) bool: pictures that may be suggested; none of them has a label.
    margin, similarity
        (n,) of the predictions; None as long as there are none.
    """

    vectors: np.ndarray
    clustering: Clustering
    labelled: np.ndarray
    available: np.ndarray
    margin: np.ndarray | None = None
    similarity: np.ndarray | None = None


def suggest(pool: Pool, count: int) -> list[Suggestion]:
    """Return the pictures to label next, the most useful first.

    As many clusters are made as suggestions are wanted. If all of them have labels, twice as many
    are made, and so on.

    Parameters
    ----------
    pool
        The pictures.
    count
        Number of suggestions; fewer are returned if there are fewer pictures.
    """
    if count < 1 or not pool.available.any():
        return []
    number = count
    clusters = pool.clustering(number)
    while _all_labelled(clusters, pool) and number < len(pool.vectors):
        number *= 2
        clusters = pool.clustering(number)
    typical = _typical(clusters, pool, again=False)
    if pool.margin is None or pool.similarity is None:
        order: Iterable[Suggestion] = typical
    else:
        uncertain = _ascending(pool.margin, pool, "uncertain")
        far = _ascending(pool.similarity, pool, "far")
        if number > count:
            order = _in_turns(typical, uncertain, far)
        else:
            order = chain(typical, _in_turns(uncertain, far))
    rest = _typical(clusters, pool, again=True)
    return list(islice(_distinct(chain(order, rest)), count))


def _all_labelled(clusters: np.ndarray, pool: Pool) -> bool:
    """Whether every cluster with available pictures has a label."""
    return bool(np.isin(clusters[pool.available], clusters[pool.labelled]).all())


def _typical(clusters: np.ndarray, pool: Pool, again: bool) -> Iterator[Suggestion]:
    """Yield the most typical picture of each cluster without a label, large clusters first.

    With ``again``, the next most typical ones of all clusters follow, in rounds.
    """
    sizes = np.bincount(clusters)
    typical = typicality(pool.vectors, clusters)
    labelled = np.bincount(clusters[pool.labelled], minlength=len(sizes))
    waiting = np.flatnonzero(pool.available)
    order = waiting[np.argsort(-typical[waiting], kind="stable")]
    rounds: list[tuple[int, int, int]] = []  # round, minus the size of the cluster, picture
    taken = labelled.copy()
    for picture in order.tolist():
        place = clusters[picture]
        rounds.append((int(taken[place]), -int(sizes[place]), picture))
        taken[place] += 1
    for number, _, picture in sorted(rounds, key=lambda each: each[:2]):
        if number and not again:
            return
        yield Suggestion(picture, "typical")


def _ascending(values: np.ndarray, pool: Pool, reason: Reason) -> Iterator[Suggestion]:
    waiting = np.flatnonzero(pool.available)
    for picture in waiting[np.argsort(values[waiting], kind="stable")].tolist():
        yield Suggestion(picture, reason)


def _in_turns(*orders: Iterable[Suggestion]) -> Iterator[Suggestion]:
    for row in zip_longest(*orders):
        yield from (each for each in row if each is not None)


def _distinct(order: Iterable[Suggestion]) -> Iterator[Suggestion]:
    seen = set()
    for each in order:
        if each.number not in seen:
            seen.add(each.number)
            yield each
