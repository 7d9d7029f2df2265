from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

import psco
from psco.methods import Episode, Method
from psco.training.feed import Feed
from psco.training.inputs import feed_for


@given(st.integers(2, 40), st.data())
def test_every_epoch_is_a_permutation_without_the_incomplete_batch(count, data):
    batch = data.draw(st.integers(2, count))
    feed = Feed(psco.ImageSet(np.zeros((count, 1, 1, 1), np.uint8)), batch, seed=3)
    per_epoch = feed.batches_per_epoch
    assert per_epoch == count // batch
    for epoch in range(3):
        numbers = range(epoch * per_epoch, (epoch + 1) * per_epoch)
        seen = np.concatenate([feed.indices(n) for n in numbers])
        assert len(set(seen.tolist())) == per_epoch * batch


def test_a_batch_depends_on_seed_and_number_only():
    images = psco.ImageSet(np.zeros((50, 1, 1, 1), np.uint8))
    one, other = Feed(images, 8, seed=1), Feed(images, 8, seed=1)
    for number in range(20):
        one.indices(number)
    assert np.array_equal(one.indices(13), other.indices(13))
    assert not np.array_equal(one.indices(13), Feed(images, 8, seed=2).indices(13))


def test_a_batch_larger_than_the_data_is_an_error_with_a_remedy():
    images = psco.ImageSet(np.zeros((50, 1, 1, 1), np.uint8))
    with pytest.raises(
        psco.InputError, match=r"51 is larger .* 50 images; --set train.batch_size=25"
    ):
        Feed(images, 51, seed=0)


@pytest.mark.parametrize("labelled", [False, True])
def test_worker_processes_give_the_same_batches_in_the_same_order(labelled):
    pixels = np.arange(40, dtype=np.uint8).reshape(40, 1, 1, 1)
    images = psco.ImageSet(pixels, np.arange(40) if labelled else None)
    alone, helped = (Feed(images, 8, seed=1, workers=n).batches(3) for n in (0, 2))
    for _ in range(12):
        (one, known), (other, known_too) = next(alone), next(helped)
        assert torch.equal(one, other)
        assert (known is None) == (not labelled)
        if labelled:
            assert torch.equal(known, known_too)
            assert torch.equal(known, one.flatten().long())


def test_a_negative_number_of_workers_is_refused():
    with pytest.raises(psco.InputError, match="workers must be at least 0, got -1"):
        Feed(psco.ImageSet(np.zeros((50, 1, 1, 1), np.uint8)), 5, seed=0, workers=-1)


def test_if_images_are_classes_a_batch_has_one_image_for_each_class_of_the_tasks():
    class OneImageEach(Method):
        images_are_classes = True
        episode = Episode(ways=5, shots=1, queries=3, tasks=4)

    images = psco.ImageSet(np.zeros((30, 8, 8, 1), np.uint8))
    feed = feed_for(OneImageEach(psco.Networks(nn.Flatten())), images, 256, 0)
    assert type(feed) is Feed
    assert feed.batch_size == 20
    assert len(np.unique(feed.indices(0))) == 20
