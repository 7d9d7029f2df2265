from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import psco
from psco.feed import Feed


@given(st.integers(2, 40), st.data())
def test_every_epoch_is_a_permutation_without_its_rest(count, data):
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


def test_a_batch_larger_than_the_data_is_refused_with_a_way_out():
    images = psco.ImageSet(np.zeros((50, 1, 1, 1), np.uint8))
    with pytest.raises(
        psco.InputError, match=r"51 is larger .* 50 images; --set train.batch_size=25"
    ):
        Feed(images, 51, seed=0)
