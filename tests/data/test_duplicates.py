"""Near-duplicates by fingerprints and embeddings."""

from __future__ import annotations

import io

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from psco.data.duplicates import (
    SIMILAR,
    Pair,
    count_copies,
    duplicate_groups,
    fingerprint,
    near_duplicates,
    near_duplicates_between,
)
from psco.errors import InputError


def unit_vectors(number, width=8, seed=0):
    vectors = np.random.default_rng(seed).normal(size=(number, width))
    return (vectors / np.linalg.norm(vectors, axis=1, keepdims=True)).astype(np.float32)


def photograph(seed, side=96):
    """Return a smooth picture with some detail, as photographs are."""
    small = np.random.default_rng(seed).integers(0, 256, (6, 6, 3), dtype=np.uint8)
    large = Image.fromarray(small).resize((side, side), Image.Resampling.BICUBIC)
    grain = np.random.default_rng(seed + 1).integers(-12, 13, (side, side, 3))
    return (np.asarray(large, np.int16) + grain).clip(0, 255).astype(np.uint8)


def recompressed(image, quality=40):
    file = io.BytesIO()
    Image.fromarray(image).save(file, "JPEG", quality=quality)
    return np.asarray(Image.open(file))


@given(st.integers(0, 1000), st.sampled_from([0.3, 0.7, 0.95]), st.sampled_from([2, 8]))
def test_pairs_are_those_of_two_plain_loops(seed, threshold, width):
    vectors = unit_vectors(40, width, seed)
    found = {pair[:2] for pair in near_duplicates(vectors, threshold)}
    for a in range(40):
        for b in range(a + 1, 40):
            cosine = float(vectors[a] @ vectors[b])
            if abs(cosine - threshold) > 1e-5:  # nearer, rounding decides
                assert ((a, b) in found) == (cosine > threshold)


def test_pairs_are_found_across_chunks(monkeypatch):
    monkeypatch.setattr("psco.data.duplicates._CHUNK", 7)
    vectors = unit_vectors(200, 3)
    found = near_duplicates(vectors, 0.98)
    cosines = vectors @ vectors.T
    assert len(found) == int((np.triu(cosines, 1) >= 0.98).sum()) > 0


def test_the_most_similar_pairs_come_first_and_are_kept():
    vectors = unit_vectors(60, 3)
    every, few = near_duplicates(vectors, 0.5), near_duplicates(vectors, 0.5, limit=5)
    assert [pair.similarity for pair in every] == sorted(
        (p.similarity for p in every), reverse=True
    )
    assert few == every[:5]


def test_similarities_do_not_exceed_one():
    vectors = np.repeat(unit_vectors(3, 200), 5, axis=0)
    pairs = near_duplicates(vectors, 1.0)
    assert len(pairs) == 3 * 10
    assert max(pair.similarity for pair in pairs) <= 1.0


def test_copies_of_a_picture_are_near_duplicates_and_other_pictures_are_not():
    pictures = [photograph(seed) for seed in range(0, 60, 2)]
    brighter = (pictures[3] * 0.8 + 40).astype(np.uint8)
    smaller = np.asarray(Image.fromarray(pictures[4]).resize((41, 41)))
    copies = [recompressed(pictures[2]), brighter, smaller]
    prints = np.stack([fingerprint(image) for image in [*pictures, *copies]])
    pairs = near_duplicates(prints)
    assert {pair[:2] for pair in pairs} == {(2, 30), (3, 31), (4, 32)}
    assert all(pair.similarity >= SIMILAR for pair in pairs)


def test_drawings_of_one_character_are_not_near_duplicates(few_glyphs):
    prints = np.stack([fingerprint(image) for image in few_glyphs.images])
    assert len(near_duplicates(prints)) < 0.001 * len(prints) ** 2 / 2


def test_blank_images_are_similar_to_nothing():
    blank = np.full((20, 20, 3), 250, np.uint8)
    blank[3, 4] = 251
    prints = np.stack([fingerprint(blank), fingerprint(np.zeros_like(blank))])
    assert near_duplicates(prints) == []


def test_a_fingerprint_is_the_mean_over_equal_areas():
    image = np.random.default_rng(0).integers(0, 256, (32, 48, 1), dtype=np.uint8)
    means = image.reshape(16, 2, 16, 3).mean(axis=(1, 3))
    expected = (means - means.mean()).ravel()
    expected /= np.linalg.norm(expected)
    np.testing.assert_allclose(fingerprint(image), expected, atol=1e-5)


def test_supports_and_queries_are_compared_with_each_other_only():
    supports, queries = unit_vectors(10), unit_vectors(12, seed=1)
    queries[7] = supports[4]
    supports[1] = supports[0]
    assert near_duplicates_between(supports, queries, 0.999) == [Pair(4, 7, pytest.approx(1))]
    assert near_duplicates_between(supports[:0], queries) == []


def test_groups_are_connected_components():
    pairs = [Pair(5, 9, 1.0), Pair(1, 2, 1.0), Pair(2, 5, 0.98), Pair(3, 4, 1.0)]
    assert duplicate_groups(pairs) == [(1, 2, 5, 9), (3, 4)]
    assert duplicate_groups([]) == []


@pytest.mark.parametrize("threshold", [0.0, 1.5, float("nan")])
def test_a_threshold_out_of_range_is_refused(threshold):
    with pytest.raises(InputError, match="must be in"):
        near_duplicates(unit_vectors(4), threshold)


def test_copies_are_counted_unless_they_belong_to_one_group():
    random = np.random.default_rng(0)
    images = random.integers(0, 256, (6, 20, 20, 3), dtype=np.uint8)
    images[4] = images[1]  # a pair
    images[5] = images[1] // 2 + 40  # darker, and still a copy
    assert count_copies(images) == 3
    assert count_copies(images, ["a", "b", "c", "d", "b", "e"]) == 3
    assert count_copies(images, ["a", "b", "c", "d", "b", "b"]) == 0
