"""Clusters and typicality, with scikit-activeml as the oracle."""

from __future__ import annotations

import numpy as np
import pytest
from skactiveml.pool import TypiClust
from sklearn.base import BaseEstimator, ClusterMixin

from psco.labelling.clusters import cluster, default_clusters, typicality
from psco.labelling.suggestions import Pool, suggest


def unit(vectors):
    return (vectors / np.linalg.norm(vectors, axis=1, keepdims=True)).astype(np.float32)


def blobs(sizes, seed=0, spread=0.2, width=16):
    random = np.random.default_rng(seed)
    centres = random.standard_normal((len(sizes), width))
    labels = np.repeat(np.arange(len(sizes)), sizes)
    vectors = centres[labels] + spread * random.standard_normal((len(labels), width))
    order = random.permutation(len(labels))
    return unit(vectors[order]), labels[order]


class OurClusters(ClusterMixin, BaseEstimator):
    def __init__(self, n_clusters=2):
        self.n_clusters = n_clusters

    def fit_predict(self, X, y=None):
        return cluster(np.asarray(X, dtype=np.float32), self.n_clusters)


def test_clusters_are_the_blobs():
    vectors, labels = blobs([30, 12, 25, 40])
    found = cluster(vectors, 4)
    assert len({(a, b) for a, b in zip(found, labels, strict=True)}) == 4


def test_a_large_pool_is_clustered_from_a_sample():
    vectors, labels = blobs([4000, 5000, 3000])
    found = cluster(vectors, 3)
    assert len({(a, b) for a, b in zip(found, labels, strict=True)}) == 3


@pytest.mark.parametrize(("pictures", "number"), [(1, 5), (2, 5), (3, 3), (5, 1)])
def test_there_are_no_more_clusters_than_pictures(pictures, number):
    vectors, _ = blobs([pictures])
    found = cluster(vectors, number)
    assert found.shape == (pictures,)
    assert len(np.unique(found)) == min(pictures, number)


@pytest.mark.parametrize(("pictures", "clusters"), [(1, 1), (400, 20), (5000, 70), (10**6, 200)])
def test_people_can_look_through_the_clusters(pictures, clusters):
    assert default_clusters(pictures) == clusters


def test_typicality_is_the_inverse_of_the_mean_distance_to_twenty_neighbours():
    vectors, _ = blobs([40, 7, 1])
    clusters = cluster(vectors, 3)
    expected = []
    for i, vector in enumerate(vectors):
        mates = [j for j in range(len(vectors)) if clusters[j] == clusters[i] and j != i]
        distances = sorted(float(np.linalg.norm(vectors[j] - vector)) for j in mates)[:20]
        expected.append(1 / np.mean(distances) if distances else 0)
    np.testing.assert_allclose(typicality(vectors, clusters), expected, rtol=1e-3)


def test_of_a_large_cluster_a_sample_can_be_typical():
    vectors, _ = blobs([1200, 3])
    clusters = cluster(vectors, 2)
    typical = typicality(vectors, clusters)
    assert np.bincount(clusters[typical > 0]).tolist() in ([500, 3], [3, 500])
    best = np.flatnonzero(clusters == np.bincount(clusters).argmax())
    best = best[typical[best].argmax()]
    cosines = vectors @ vectors[clusters == clusters[best]].mean(axis=0)
    assert (cosines > cosines[best]).sum() < 120  # near the middle of its cluster


@pytest.mark.parametrize("seed", range(4))
def test_first_suggestions_are_those_of_typiclust(seed):
    sizes = [50, 41, 33, 26, 15]  # all different, since TypiClust breaks ties at random
    vectors, _ = blobs(sizes, seed)
    nothing = np.zeros(len(vectors), dtype=bool)
    pool = Pool(vectors, lambda number: cluster(vectors, number), nothing, ~nothing)
    found = [each.number for each in suggest(pool, 5)]
    oracle = TypiClust(cluster_algo=OurClusters, k=20, random_state=0)
    expected = oracle.query(vectors, np.full(len(vectors), np.nan), batch_size=5)
    assert found == expected.tolist()
