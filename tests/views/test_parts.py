"""Turn, stroke and erase against slow loops, and the detection of blank views."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from psco.errors import InputError
from psco.views import (
    Affine,
    Blur,
    Crop,
    Erase,
    Flip,
    Grey,
    Jitter,
    Stroke,
    Turn,
    TwoViews,
    View,
    blank_fraction,
    check_views,
    step_generator,
)
from psco.views.crop import sample_boxes
from psco.views.erase import box_masks
from psco.views.stroke import brightest_neighbour, grow_dark, has_dark_ink


def generator(seed: int = 0) -> torch.Generator:
    return step_generator(seed, 0)


def noise(count: int, channels: int, height: int, width: int) -> torch.Tensor:
    return torch.rand(count, channels, height, width, generator=torch.Generator().manual_seed(1))


def cross(side: int = 28, ink: float = 0.0, paper: float = 1.0) -> torch.Tensor:
    """A cross of lines three pixels wide that ends before the border."""
    image = torch.full((1, 1, side, side), paper)
    middle = side // 2
    image[..., middle - 1 : middle + 2, 4:-4] = ink
    image[..., 4:-4, middle - 1 : middle + 2] = ink
    return image


# --- orientation ------------------------------------------------------------------------------


def test_vertical_flips_are_optional_and_off_by_default():
    images = noise(400, 1, 5, 6)
    assert Flip(0, vertical=1)(images, 0, generator()).equal(images.flip(2))
    assert Flip(1, vertical=1)(images, 0, generator()).equal(images.flip((2, 3)))
    both = Flip(0.5, vertical=0.5)(images, 0, generator())
    ways = [images, images.flip(2), images.flip(3), images.flip((2, 3))]
    counts = [(both == way).flatten(1).all(1).sum() for way in ways]
    assert sum(counts) == 400
    assert min(counts) > 60
    # Runs of older recipes must keep their random numbers.
    draws = generator()
    Flip()(images, 0, draws)
    expected = generator()
    torch.rand(400, generator=expected)
    assert torch.rand(3, generator=draws).equal(torch.rand(3, generator=expected))


def test_turn_draws_all_four_rotations_equally_often():
    images = noise(800, 2, 5, 5)
    turned = Turn()(images, 0, generator())
    counts = [(turned == images.rot90(k, (2, 3))).flatten(1).all(1).sum() for k in range(4)]
    assert sum(counts) == 800
    assert min(counts) > 150
    assert Turn(0)(images, 0, generator()).equal(images)


def test_turn_rotates_images_with_the_given_probability():
    images = noise(800, 1, 4, 4)
    turned = (Turn(0.4)(images, 0, generator()) != images).flatten(1).any(1)
    assert turned.float().mean() == pytest.approx(0.3, abs=0.05)


def test_turn_of_images_that_are_not_square_is_an_error():
    with pytest.raises(InputError, match=r"must be square, not 5 x 6 px; put crop before turn"):
        Turn()(noise(2, 1, 5, 6), 0, generator())


# --- strokes ----------------------------------------------------------------------------------


def slow_growth(image: np.ndarray, amount: float, pick) -> np.ndarray:
    """Move each pixel towards the extreme of its neighbourhood, one pixel of growth at a time."""
    height, width = image.shape
    while amount > 0:
        extreme = np.empty_like(image)
        for y, x in np.ndindex(height, width):
            extreme[y, x] = pick(image[max(y - 1, 0) : y + 2, max(x - 1, 0) : x + 2])
        image = image + min(amount, 1) * (extreme - image)
        amount -= 1
    return image


def test_growth_equals_a_loop_over_pixels_for_every_amount():
    images, amount = noise(6, 2, 7, 9), torch.tensor([0.0, 0.3, 1.0, 2.4, -0.7, -1.5])
    ours = grow_dark(images, amount)
    for b, channel in np.ndindex(6, 2):
        pick = np.min if amount[b] > 0 else np.max
        expected = slow_growth(images[b, channel].numpy(), abs(amount[b].item()), pick)
        np.testing.assert_allclose(ours[b, channel], expected, atol=1e-6)


@pytest.mark.parametrize(("height", "width"), [(1, 1), (1, 5), (2, 2)])
def test_the_neighbourhood_is_cut_at_the_border(height, width):
    images = noise(3, 1, height, width)
    ours = brightest_neighbour(images)
    for b, y, x in np.ndindex(3, height, width):
        part = images[b, 0, max(y - 1, 0) : y + 2, max(x - 1, 0) : x + 2]
        assert ours[b, 0, y, x] == part.max()


@pytest.mark.parametrize(("ink", "paper", "option"), [(0.1, 0.9, "dark"), (0.9, 0.1, "light")])
def test_strokes_grow_and_shrink_for_dark_and_light_ink(ink, paper, option):
    image = cross(ink=ink, paper=paper)

    def amount_of_ink(part: Stroke) -> float:
        return float((part(image, 28, generator()) - paper).abs().sum())

    before = float((image - paper).abs().sum())
    for how in (option, "auto"):
        assert amount_of_ink(Stroke((0.5, 0.5), how)) > 1.2 * before
        assert amount_of_ink(Stroke((-0.5, -0.5), how)) < 0.8 * before
    assert Stroke((0.5, 0.5), probability=0)(image, 28, generator()).equal(image)


def test_ink_is_dark_if_the_image_is_darker_than_its_border():
    images = torch.cat([cross(), cross(ink=1, paper=0), torch.ones(1, 1, 28, 28)])
    assert has_dark_ink(images).tolist() == [True, False, True]


# --- erasing ----------------------------------------------------------------------------------


def test_masks_equal_a_loop_over_boxes():
    boxes = sample_boxes(20, 9, 13, (0.1, 0.6), (0.3, 3.0), generator())
    masks = box_masks(boxes, 9, 13)
    for mask, (top, left, height, width) in zip(masks, boxes.tolist(), strict=True):
        expected = torch.zeros(1, 9, 13, dtype=torch.bool)
        expected[:, top : top + height, left : left + width] = True
        assert mask.equal(expected)


@pytest.mark.parametrize("fill", ["white", "black", "mean", "auto", "noise", (51.0, 102.0, 0.0)])
def test_erase_paints_one_box_with_the_fill_and_nothing_else(fill):
    images = 0.2 + 0.6 * noise(30, 3, 16, 16)
    ours = Erase(area=(0.1, 0.3), fill=fill, probability=1)(images, 16, generator())
    draws = generator()
    torch.rand(30, generator=draws)
    boxes = sample_boxes(30, 16, 16, (0.1, 0.3), (0.3, 3.3), draws)
    colours = {
        "white": torch.ones(30, 3, 1, 1),
        "black": torch.zeros(30, 3, 1, 1),
        "mean": images.mean((2, 3), keepdim=True),
        (51.0, 102.0, 0.0): torch.tensor([0.2, 0.4, 0.0]).view(1, 3, 1, 1).expand(30, 3, 1, 1),
    }
    for b, (top, left, height, width) in enumerate(boxes.tolist()):
        box = ours[b, :, top : top + height, left : left + width]
        if fill in colours:
            torch.testing.assert_close(box, colours[fill][b].expand_as(box))
        elif fill == "auto":
            assert (box == box[:, :1, :1]).all()
        outside = ours[b].clone()
        outside[:, top : top + height, left : left + width] = images[b][
            :, top : top + height, left : left + width
        ]
        assert outside.equal(images[b])
    if fill == "noise":
        assert ours.min() < 0.1
        assert ours.max() > 0.9
        again = Erase(area=(0.1, 0.3), fill=fill, probability=1)(images, 16, generator())
        assert again.equal(ours)


def test_erase_changes_all_none_or_half_of_the_images():
    images = noise(400, 1, 12, 12)
    assert Erase(probability=0)(images, 0, generator()).equal(images)
    some = (Erase()(images, 0, generator()) != images).flatten(1).any(1)
    assert 150 < some.sum() < 250


# --- blank views ------------------------------------------------------------------------------

DRAWINGS = (torch.cat([cross()] * 40) * 255).to(torch.uint8)


def pair(*parts) -> TwoViews:
    return TwoViews(View(parts, 28, (0.5,), (0.25,)), View([], 28, (0.5,), (0.25,)))


@pytest.mark.parametrize(
    ("parts", "cause"),
    [
        (
            [Crop(scale=(0.5, 1.0)), Stroke(amount=(-4, -3))],
            r"stroke.amount=\(-4, -3\); the default is \(-0.3, 0.4\)",
        ),
        ([Crop(scale=(0.006, 0.006)), Flip()], r"crop.scale=\(0.006, 0.006\); the default is"),
        ([Blur(sigma=(99, 99), probability=1)], r"blur.sigma=\(99, 99\); the default is"),
        ([Erase((0.95, 0.99), (1, 1), fill="white", probability=1)], r"erase.area=\(0.95, 0.99\)"),
    ],
)
def test_blank_views_are_an_error_with_the_part_and_its_option(parts, cause):
    with pytest.raises(InputError, match=f"view_a: .*single colour, because of {cause}") as error:
        check_views(pair(*parts), DRAWINGS)
    assert "\n" not in str(error.value)


def test_functions_that_return_blank_views_are_an_error():
    views = TwoViews(View([], 28, (0.5,), (0.25,)), lambda images: 0 * images.float())
    with pytest.raises(InputError, match=r"view_b: 100% .* because of the function"):
        check_views(views, DRAWINGS)


def test_views_with_content_are_accepted_and_blank_ones_counted():
    check_views(pair(Affine(), Stroke(), Jitter(), Grey()), DRAWINGS)
    fraction = blank_fraction(pair(Crop(scale=(0.02, 0.02))).view_a, DRAWINGS)
    assert 0 < fraction < 1


def test_blank_images_are_not_counted_as_blank_views():
    blank = torch.zeros(8, 1, 28, 28, dtype=torch.uint8)
    check_views(pair(Affine()), blank)
    half = torch.cat([blank, DRAWINGS[:8]])
    assert blank_fraction(pair(Affine()).view_a, half) == 0


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Flip(vertical=2), r"flip: vertical must be in \[0, 1\], not 2"),
        (lambda: Turn(-1), r"turn: probability must be in \[0, 1\], not -1"),
        (lambda: Stroke((0.5, -0.5)), r"stroke: amount must be -4 <= low <= high <= 4"),
        (lambda: Stroke(ink="blue"), "stroke: ink must be auto, dark, light, not 'blue'"),
        (lambda: Stroke(probability=3), r"stroke: probability .* not 3"),
        (lambda: Erase(area=(0.5, 1)), r"erase: area .* not \(0.5, 1\); 1 erases the whole"),
        (lambda: Erase(area=(0, 0.5)), r"erase: area must be 0 < low .* not \(0, 0.5\)"),
        (lambda: Erase(fill="edge"), r"erase: fill must be white, .* noise, .* not 'edge'"),
        (lambda: Erase(ratio=(2, 1)), r"erase: ratio .* not \(2, 1\)"),
    ],
)
def test_invalid_options_are_one_line_errors(make, message):
    with pytest.raises(InputError, match=message) as error:
        make()
    assert "\n" not in str(error.value)
