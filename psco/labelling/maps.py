"""Embeddings in the plane: principal components at once, t-SNE when there is time."""

from __future__ import annotations

import numpy as np
from sklearn.decomposition import PCA
from sklearn.manifold import TSNE

_SEED = 0
_SAMPLE = 3000  # pictures that t-SNE arranges; the others are placed among their neighbours
_NEIGHBOURS = 3
_CHUNK = 2048  # rows compared at a time


def pca_map(vectors: np.ndarray) -> np.ndarray:
    """Return the two principal components of vectors (n, d), scaled into [−1, 1]: (n, 2)."""
    if len(vectors) < 3 or vectors.shape[1] < 2:
        return np.zeros((len(vectors), 2), dtype=np.float32)
    return _scaled(PCA(2, random_state=_SEED).fit_transform(vectors))


def tsne_map(vectors: np.ndarray) -> np.ndarray:
    """Return vectors (n, d) of unit length as arranged by t-SNE, scaled into [−1, 1]: (n, 2).

    Of more than 3,000 vectors a sample is arranged, and the others are placed at the mean of their
    three nearest neighbours in it.
    """
    if len(vectors) < 10:
        return pca_map(vectors)
    random = np.random.default_rng(_SEED)
    chosen = np.sort(random.permutation(len(vectors))[:_SAMPLE])
    sample = vectors[chosen]
    perplexity = min(30.0, (len(sample) - 1) / 3)
    arranged = TSNE(perplexity=perplexity, init="pca", random_state=_SEED).fit_transform(sample)
    points = np.empty((len(vectors), 2), dtype=np.float32)
    for begin in range(0, len(vectors), _CHUNK):
        cosines = vectors[begin : begin + _CHUNK] @ sample.T
        nearest = np.argpartition(-cosines, _NEIGHBOURS, axis=1)[:, :_NEIGHBOURS]
        points[begin : begin + _CHUNK] = arranged[nearest].mean(axis=1)
    points[chosen] = arranged
    return _scaled(points)


def _scaled(points: np.ndarray) -> np.ndarray:
    centred = points - points.mean(axis=0)
    largest = np.abs(centred).max()
    scaled: np.ndarray = (centred / (largest or 1.0)).astype(np.float32)
    return scaled
