"""Mirrored shifts, several views of an image, and the flip that they share."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from psco.errors import InputError
from psco.views import Crop, Flip, Shift, TwoViews, View, step_generator
from psco.views.shift import _mirrored, shift_mirrored


def noise(count: int, side: int = 12) -> torch.Tensor:
    return torch.rand(count, 2, side, side + 2, generator=torch.Generator().manual_seed(1))


def pixels(count: int) -> torch.Tensor:
    random = np.random.default_rng(0)
    images = random.integers(0, 256, (count, 14, 14, 1), dtype=np.uint8)
    return torch.from_numpy(images).permute(0, 3, 1, 2)


def view(*parts, size: int = 14) -> View:
    return View(parts, size, [0.0], [1.0])


def test_a_shift_shows_what_numpy_pads_by_reflection():
    images = noise(30)
    offsets = torch.randint(-3, 4, (30, 2), generator=torch.Generator().manual_seed(2))
    shifted = shift_mirrored(images, offsets)
    for image, (dy, dx), found in zip(images, offsets.tolist(), shifted, strict=True):
        padded = np.pad(image.numpy(), ((0, 0), (3, 3), (3, 3)), mode="reflect")
        assert np.array_equal(padded[:, 3 + dy : 15 + dy, 3 + dx : 17 + dx], found.numpy())


def test_both_forms_of_a_shift_agree_in_any_memory_format():
    offsets = torch.randint(-3, 4, (9, 2), generator=torch.Generator().manual_seed(3))
    images = noise(9)
    rows, columns = _mirrored(offsets[:, 0], 12), _mirrored(offsets[:, 1], 14)
    gathered = torch.stack([images[i][:, rows[i]][:, :, columns[i]] for i in range(9)])
    assert torch.equal(shift_mirrored(images, offsets), gathered)
    last = images.contiguous(memory_format=torch.channels_last)
    assert torch.equal(shift_mirrored(last, offsets), gathered)


def test_shifts_reach_their_limits_and_spare_the_right_fraction():
    images = torch.arange(20.0).expand(2000, 1, 20, 20) / 20
    shifted = Shift(most=0.1, probability=0.5)(images, 20, step_generator(0, 0))
    middle = (20 * shifted[:, 0, 10, 10]).round().long() - 10  # the horizontal offset
    assert set(middle.tolist()) == {-2, -1, 0, 1, 2}
    assert (middle == 0).float().mean() == pytest.approx(0.5 + 0.5 / 5, abs=0.04)
    assert Shift(probability=0)(images, 20, step_generator(0, 0)).equal(images)


@pytest.mark.parametrize("options", [{"most": -0.1}, {"most": 0.3}, {"probability": 2.0}])
def test_a_shift_out_of_range_is_refused(options):
    with pytest.raises(InputError, match=r"^shift: \w+ must be in"):
        Shift(**options)


def test_several_online_views_are_draws_of_view_a_one_after_the_other():
    images, generator = pixels(5), step_generator(0, 3)
    a, b = TwoViews(view(Crop()), view(Crop()), count=4)(images, generator)
    twin = step_generator(0, 3)
    drawn = [view(Crop())(images, twin) for _ in range(4)]
    assert torch.equal(a, torch.cat(drawn[:3]))
    assert torch.equal(b, drawn[3])
    assert len({part.numpy().tobytes() for part in drawn}) == 4


def test_a_shared_flip_turns_all_views_of_an_image_and_half_of_the_images():
    images = pixels(200)
    a, b = TwoViews(view(), view(), count=3, shared_flip=0.5)(images, step_generator(0, 0))
    plain = view()(images, step_generator(0, 0))
    flipped = (b != plain).flatten(1).any(1)
    assert 70 < int(flipped.sum()) < 130
    expected = torch.where(flipped[:, None, None, None], plain.flip(3), plain)
    assert torch.equal(a, torch.cat([expected, expected]))
    assert torch.equal(b, expected)


def test_two_views_draw_the_same_numbers_as_before_there_were_more():
    images = pixels(6)
    a, b = TwoViews(view(Crop(), Flip()), view(Crop()))(images, step_generator(1, 2))
    twin = step_generator(1, 2)
    assert torch.equal(a, view(Crop(), Flip())(images, twin))
    assert torch.equal(b, view(Crop())(images, twin))


def test_views_at_another_size_keep_their_parts_and_their_random_numbers():
    views = TwoViews(view(Crop()), view(Crop()), count=3, shared_flip=0.5)
    small = views.at_size(8)
    assert (small.count, small.shared_flip) == (3, 0.5)
    a, b = small(pixels(4), step_generator(0, 0))
    assert a.shape == (8, 1, 8, 8)
    assert b.shape == (4, 1, 8, 8)
    with pytest.raises(InputError, match="functions have their own size"):
        TwoViews(lambda x: x, view()).at_size(8)


def test_fewer_than_two_views_and_impossible_flips_are_refused():
    with pytest.raises(InputError, match=r"views.count must be at least 2, got 1"):
        TwoViews(view(), view(), count=1)
    with pytest.raises(InputError, match="shared_flip must be in"):
        TwoViews(view(), view(), shared_flip=1.5)
