"""Tasks from labellings: one equals the true classes' drawer, several are drawn uniformly."""

from __future__ import annotations

import numpy as np
import pytest

from psco.data import ImageSet
from psco.data.labellings import UNLABELLED, LabellingDrawer
from psco.data.tasks import TaskDrawer
from psco.errors import InputError
from psco.methods import Episode
from psco.training.feed import EpisodeFeed


def stream(seed=0):
    return np.random.Philox(key=seed)


def test_one_labelling_gives_the_tasks_of_the_true_classes():
    labels = np.arange(60) % 6
    expected = TaskDrawer(labels, 3, 1, 2).draw(stream(), 5)
    for given in (labels, labels[None]):
        np.testing.assert_array_equal(LabellingDrawer(given, 3, 1, 2).draw(stream(), 5), expected)


def test_every_task_is_of_one_labelling_and_has_distinct_images_of_distinct_classes():
    labels = np.random.default_rng(0).permuted(np.tile(np.arange(80) % 8, (3, 1)), axis=1)
    used = np.zeros(3)
    for task in LabellingDrawer(labels, 4, 1, 3).draw(stream(1), 300):  # (N, K + Q)
        fits = [
            (one[task] == one[task][:, :1]).all() and len(np.unique(one[task][:, 0])) == 4
            for one in labels
        ]
        assert sum(fits) == 1
        used += fits
        assert len(np.unique(task)) == 16
    assert used.min() > 70  # 100 each are expected


def test_images_without_a_label_and_classes_that_are_too_small_are_never_drawn():
    labels = np.repeat([UNLABELLED, 0, 1, 2, 3], [30, 5, 5, 5, 2])
    tasks = LabellingDrawer(labels, 3, 1, 2).draw(stream(), 200)
    assert set(np.unique(tasks)) == set(range(30, 45))


def test_draws_of_a_cluster_are_uniform_over_clusters_of_different_sizes():
    labels = np.repeat([0, 1, 2, 3], [4, 400, 4, 4])
    tasks = LabellingDrawer(labels, 2, 1, 1).draw(stream(), 2000)
    frequency = np.bincount(labels[tasks[..., 0]].ravel(), minlength=4) / 2000
    np.testing.assert_allclose(frequency, 0.5, atol=0.05)


@pytest.mark.parametrize("labels", [np.zeros((2, 0), int), np.zeros((0, 4), int)])
def test_labels_without_images_or_labellings_are_an_error(labels):
    with pytest.raises(InputError, match=r"shape \(n,\) or \(P, n\) .* got"):
        LabellingDrawer(labels, 2, 1, 1)


def test_a_labelling_with_too_few_classes_is_an_error():
    labels = np.stack([np.arange(20) % 4, np.zeros(20, int)])
    with pytest.raises(InputError, match="3 classes of at least 2 images; 1 of 1 classes have"):
        LabellingDrawer(labels, 3, 1, 1)


def test_a_feed_draws_tasks_from_labels_that_were_found():
    images = np.arange(40, dtype=np.uint8)[:, None, None, None] + np.zeros((1, 2, 2, 1), np.uint8)
    labels = np.stack([np.arange(40) % 5, np.arange(40) // 8])
    feed = EpisodeFeed(ImageSet(images), Episode(3, 1, 2, tasks=2), seed=3, labels=labels)
    batch, given = feed[7]
    assert given is None
    expected = LabellingDrawer(labels, 3, 1, 2).draw(np.random.Philox(key=[3, 7]), 2)
    np.testing.assert_array_equal(batch[:, 0, 0, 0], expected.reshape(-1))
