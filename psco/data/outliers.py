"""Outliers: images that are far from all others, by fingerprints or by embeddings."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

_REFERENCES = 5000  # images that the others are compared with to find outliers
_NEIGHBOURS = 10
_CHUNK = 2048  # rows compared at a time
# Median absolute deviations beyond the median; one image in 700 of a normal distribution.
_FAR = 4.5


class Outlier(NamedTuple):
    """A image that is far from all others.

    Parameters
    ----------
    number
        The image.
    distance
        Mean distance 1 − cosine to its 10 nearest neighbours.
    """

    number: int
    distance: float


def find_outliers(vectors: np.ndarray) -> list[Outlier]:
    """Return the vectors (n, d) of unit length that are far from all others, the farthest first.

    Far is a distance, see `Outlier`, whose logarithm is more than 4.5 median absolute deviations
    above the median: distances are positive, and their distribution has a long tail.
    The neighbours are looked for among at most 5,000 images.
    """
    count = min(_NEIGHBOURS, len(vectors) - 1)
    if count < 1:
        return []
    random = np.random.default_rng(0)
    chosen = np.sort(random.permutation(len(vectors))[:_REFERENCES])
    references = vectors[chosen]
    distances = np.empty(len(vectors), dtype=np.float32)
    for begin in range(0, len(vectors), _CHUNK):
        rows = np.arange(begin, min(begin + _CHUNK, len(vectors)))
        cosines = vectors[rows] @ references.T  # (chunk, references)
        cosines[rows[:, None] == chosen] = -np.inf  # a image is not its own neighbour
        nearest = np.partition(cosines, -count, axis=1)[:, -count:]
        distances[rows] = 1 - nearest.mean(axis=1)
    logs = np.log(np.maximum(distances, 1e-6))
    median = np.median(logs)
    deviation = np.median(np.abs(logs - median))
    far = np.flatnonzero(logs > median + _FAR * deviation + 1e-3)
    ordered = far[np.argsort(-distances[far], kind="stable")]
    return [Outlier(int(row), float(distances[row])) for row in ordered]
