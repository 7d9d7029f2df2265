"""Look-alikes, outliers and maps on points whose arrangement is known."""

from __future__ import annotations

import numpy as np
import pytest

from psco.data.duplicates import Pair
from psco.data.outliers import find_outliers
from psco.labelling.maps import pca_map, tsne_map
from psco.labelling.neighbours import group_copies, most_similar


def unit(vectors):
    return (vectors / np.linalg.norm(vectors, axis=1, keepdims=True)).astype(np.float32)


def blobs(number=60, seed=0):
    random = np.random.default_rng(seed)
    centres = 3 * random.standard_normal((3, 16))
    labels = np.arange(number) % 3
    return unit(centres[labels] + 0.3 * random.standard_normal((number, 16))), labels


def test_the_most_similar_come_first_and_similarities_are_cosines_not_below_zero():
    vectors, _ = blobs()
    found = most_similar(vectors, vectors[7], 60)
    assert found[0] == (7, pytest.approx(1, abs=1e-6))
    cosines = np.maximum(vectors @ vectors[7], 0)
    assert [each.similarity for each in found] == sorted(cosines.clip(0, 1), reverse=True)


def test_the_far_pictures_are_the_outliers():
    vectors, _ = blobs()
    vectors[11] = -vectors[vectors @ vectors[11] > 0.5].mean(axis=0)
    vectors = unit(vectors)
    found = find_outliers(vectors)
    assert found[0].number == 11
    assert len(found) <= 3
    nearest = np.sort(np.delete(vectors @ vectors[11], 11))[-10:]
    assert found[0].distance == pytest.approx(1 - nearest.mean(), abs=1e-5)


def test_a_large_folder_is_compared_with_a_sample():
    vectors, _ = blobs(6000)
    vectors[17] *= -1
    assert find_outliers(vectors)[0].number == 17


@pytest.mark.parametrize("number", [0, 1, 2])
def test_few_or_equal_pictures_have_no_outliers(number):
    assert find_outliers(blobs(3)[0][:number]) == []
    assert find_outliers(np.repeat(blobs(3)[0][:1], 20, axis=0)) == []


def test_of_copies_the_labelled_then_the_largest_then_the_first_is_kept():
    pairs = [Pair(0, 1, 0.99), Pair(1, 2, 0.98), Pair(4, 5, 1.0), Pair(6, 7, 0.97)]
    sizes = np.array([10, 30, 20, 0, 5, 5, 9, 1])
    labelled = np.array([False, False, True, False, False, False, False, True])
    found = group_copies(pairs, sizes, labelled)
    assert [tuple(each) for each in found] == [
        (4, (5,), 1.0),
        (2, (0, 1), 0.98),
        (7, (6,), 0.97),
    ]
    assert group_copies(pairs, sizes, labelled & False)[1].keep == 1


@pytest.mark.parametrize(("arrange", "number"), [(pca_map, 60), (pca_map, 3200), (tsne_map, 60)])
def test_pictures_of_one_blob_are_together_on_the_map(arrange, number):
    vectors, labels = blobs(number)
    points = arrange(vectors)
    assert points.shape == (number, 2)
    assert np.abs(points).max() == pytest.approx(1)
    centres = np.stack([points[labels == each].mean(axis=0) for each in range(3)])
    distances = np.linalg.norm(points[:, None] - centres, axis=2)
    assert (distances.argmin(axis=1) == labels).all()


def test_pictures_outside_the_sample_are_placed_among_their_neighbours(monkeypatch):
    monkeypatch.setattr("psco.labelling.maps._SAMPLE", 60)
    vectors, labels = blobs(150)
    points = tsne_map(vectors)
    centres = np.stack([points[labels == each].mean(axis=0) for each in range(3)])
    distances = np.linalg.norm(points[:, None] - centres, axis=2)
    assert (distances.argmin(axis=1) == labels).all()


@pytest.mark.parametrize("number", [0, 1, 2])
def test_a_map_of_almost_nothing_is_a_point(number):
    assert (pca_map(blobs(3)[0][:number]) == 0).all()
    assert tsne_map(blobs(3)[0][:number]).shape == (number, 2)
