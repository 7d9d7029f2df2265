"""What to label next: typical, uncertain and far pictures, in this order."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from psco.labelling.clusters import cluster
from psco.labelling.suggestions import Pool, suggest


def pool_of(number, labelled=(), seed=0, with_predictions=False):
    random = np.random.default_rng(seed)
    vectors = random.standard_normal((number, 8)).astype(np.float32)
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    has_label = np.zeros(number, dtype=bool)
    has_label[list(labelled)] = True
    pool = Pool(vectors, lambda count: cluster(vectors, count), has_label, ~has_label)
    if with_predictions:
        margin, similarity = random.random((2, number)).astype(np.float32)
        pool = pool._replace(margin=margin, similarity=similarity)
    return pool


@given(
    number=st.integers(1, 40),
    count=st.integers(0, 50),
    seed=st.integers(0, 20),
    share=st.floats(0, 1),
    with_predictions=st.booleans(),
)
def test_suggestions_are_distinct_available_and_as_many_as_wanted(
    number, count, seed, share, with_predictions
):
    labelled = np.flatnonzero(np.random.default_rng(seed).random(number) < share)
    pool = pool_of(number, labelled, seed, with_predictions)
    found = [each.number for each in suggest(pool, count)]
    assert len(found) == len(set(found)) == min(count, number - len(labelled))
    assert pool.available[found].all()


def test_without_labels_every_cluster_gets_one_typical_picture():
    pool = pool_of(60)
    found = suggest(pool, 6)
    assert {each.reason for each in found} == {"typical"}
    clusters = pool.clustering(6)
    sizes = np.bincount(clusters)
    places = [clusters[each.number] for each in found]
    assert sorted(places) == list(range(6))
    assert [sizes[place] for place in places] == sorted(sizes, reverse=True)


def test_clusters_with_a_label_are_passed_over_while_others_have_none():
    pool = pool_of(60)
    first = [each.number for each in suggest(pool, 6)]
    later = suggest(pool_of(60, first[:4], with_predictions=True), 6)
    assert [each.number for each in later[:2]] == first[4:]
    assert [each.reason for each in later[2:]] == ["uncertain", "far", "uncertain", "far"]


def test_once_every_cluster_has_a_label_the_three_kinds_take_turns():
    first = [each.number for each in suggest(pool_of(60), 6)]
    pool = pool_of(60, first, with_predictions=True)
    found = suggest(pool, 6)
    assert [each.reason for each in found] == ["typical", "uncertain", "far"] * 2
    waiting = np.flatnonzero(pool.available)
    assert found[1].number == waiting[pool.margin[waiting].argmin()]
    assert found[2].number == waiting[pool.similarity[waiting].argmin()]
