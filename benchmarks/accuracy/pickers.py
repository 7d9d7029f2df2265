"""Rivals of the suggestions: ways to choose the pictures of a pool that get a label."""

from __future__ import annotations

import numpy as np

from psco.labelling.clusters import cluster

PURITY = 0.95  # fraction of balls within one cluster, as in the paper of ProbCover


def k_centre(vectors: np.ndarray, count: int, first: int) -> list[int]:
    """Return the first picture, then each time the one farthest from all chosen ones.

    Sener and Savarese, 2018.

    Parameters
    ----------
    vectors
        (n, d).
    count
        Number of pictures.
    first
        The picture to start with.
    """
    chosen = [first]
    nearest = _distances(vectors, vectors[[first]])[:, 0]  # to a chosen picture
    while len(chosen) < count:
        chosen.append(int(nearest.argmax()))
        nearest = np.minimum(nearest, _distances(vectors, vectors[chosen[-1:]])[:, 0])
    return chosen


def prob_cover(vectors: np.ndarray, count: int, radius: float) -> list[int]:
    """Return pictures whose balls of the given radius cover most of the pool, chosen greedily.

    Yehuda et al., 2022. Parameters are those of `k_centre`.
    """
    covers = _distances(vectors, vectors) <= radius  # (n, n)
    chosen: list[int] = []
    for _ in range(count):
        gains = covers.sum(axis=1)
        gains[chosen] = -1
        chosen.append(int(gains.argmax()))
        covers[:, covers[chosen[-1]]] = False
    return chosen


def pure_radius(vectors: np.ndarray, clusters: int) -> float:
    """Return the largest radius at which 95 % of the balls stay within one cluster."""
    groups = cluster(vectors, clusters)
    distances = _distances(vectors, vectors)
    distances[groups[:, None] == groups] = np.inf
    # A ball is pure below the distance to the nearest picture of another cluster.
    return float(np.quantile(distances.min(axis=1), 1 - PURITY, method="lower")) - 1e-6


def _distances(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    squares = (a**2).sum(axis=1)[:, None] + (b**2).sum(axis=1) - 2 * a @ b.T
    distances: np.ndarray = np.sqrt(np.maximum(squares, 0))
    return distances
