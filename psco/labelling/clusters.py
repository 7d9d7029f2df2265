"""Clusters of embeddings, and how typical each member is of its cluster.

k-means depends on where it starts. From the clusters of Ward's method it finds more of the classes
in a pool than from the best of five random starts (results/labelling/README.md).
"""

from __future__ import annotations

import math

import numpy as np
from sklearn.cluster import AgglomerativeClustering, KMeans

_SEED = 0
_START = 2000  # vectors that Ward's method joins: its memory grows with their square
_SAMPLE = 10_000  # vectors that the centres are the means of
_NEIGHBOURS = 20  # as in the paper of TypiClust
_COMPARED = 500  # members of a cluster: the time grows with their square
_CHUNK = 2048  # rows compared at a time


def default_clusters(number: int) -> int:
    """Return a number of clusters that people can look through: the square root, at most 200."""
    return max(1, min(200, math.isqrt(number)))


def cluster(vectors: np.ndarray, number: int) -> np.ndarray:
    """Return the cluster (n,) of each vector: k-means, started from the clusters of Ward's method.

    Of more than 2,000 vectors a sample gives the start, and of more than 10,000 the centres.

    Parameters
    ----------
    vectors
        (n, d).
    number
        Of clusters; fewer if there are fewer vectors. At most 1,000.
    """
    order = np.random.default_rng(_SEED).permutation(len(vectors))
    sample, few = (vectors[np.sort(order[:size])] for size in (_SAMPLE, _START))
    number = min(number, len(few) // 2 if len(vectors) > _START else len(few))
    if number < 2:
        return np.zeros(len(vectors), dtype=np.int64)
    joined = AgglomerativeClustering(number, linkage="ward").fit_predict(few)
    start = np.stack([few[joined == each].mean(axis=0) for each in range(number)])
    means = KMeans(number, init=start, n_init=1, random_state=_SEED).fit(sample)
    centres = means.cluster_centers_.astype(np.float32)
    half_squares = (centres**2).sum(axis=1) / 2
    parts = [
        (vectors[begin : begin + _CHUNK] @ centres.T - half_squares).argmax(axis=1)
        for begin in range(0, len(vectors), _CHUNK)
    ]
    return np.concatenate(parts)


def typicality(vectors: np.ndarray, clusters: np.ndarray) -> np.ndarray:
    """Return how typical each vector (n, d) of unit length is of its cluster: (n,).

    The inverse of the mean distance to its 20 nearest neighbours in the cluster, as in TypiClust
    (Hacohen et al., 2022); 0 for a vector that is alone. In a cluster of more than 500, that many
    are drawn and compared with one another, and the others get 0.
    """
    random = np.random.default_rng(_SEED)
    typical = np.zeros(len(vectors), dtype=np.float32)
    for number in np.unique(clusters):
        members = np.flatnonzero(clusters == number)
        if len(members) > _COMPARED:
            members = np.sort(random.permutation(members)[:_COMPARED])
        count = min(_NEIGHBOURS, len(members) - 1)
        if count < 1:
            continue
        inside = vectors[members]
        squares = 2 - 2 * inside @ inside.T  # (members, members)
        np.fill_diagonal(squares, np.inf)
        nearest = np.partition(squares, count - 1, axis=1)[:, :count]
        typical[members] = 1 / (np.sqrt(np.maximum(nearest, 0)).mean(axis=1) + 1e-6)
    return typical
