"""Views against slow loops and Pillow, and their reproducibility."""

from __future__ import annotations

import colorsys
import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image, ImageEnhance

from psco.errors import InputError
from psco.ops.crop import crop_resize
from psco.views import (
    VIEW_PARTS,
    Affine,
    Blur,
    CallableView,
    Crop,
    Elastic,
    Erase,
    Flip,
    Grey,
    Jitter,
    Stroke,
    TwoViews,
    View,
    plain_view,
    resize,
    resize_weights,
    separable,
    step_generator,
    to_batch,
)
from psco.views.blur import blur_weights
from psco.views.colour import (
    change_brightness,
    change_contrast,
    change_hue,
    change_saturation,
    luma,
)
from psco.views.crop import central_box, sample_boxes

PILLOW_FILTER = {"bilinear": Image.Resampling.BILINEAR, "bicubic": Image.Resampling.BICUBIC}


def noise(count: int, height: int, width: int, channels: int, seed: int = 0) -> np.ndarray:
    rng = np.random.default_rng(seed)
    return rng.integers(0, 256, (count, height, width, channels), dtype=np.uint8)


def strokes(count: int, side: int, channels: int) -> np.ndarray:
    """Black lines on white, the content on which the bicubic filter overshoots most."""
    images = np.full((count, side, side, channels), 255, dtype=np.uint8)
    steps = np.linspace(0, side - 1, 4 * side)
    for index in range(count):
        bend = side / 3 * np.sin(steps / side * (index + 2)) + side / 2
        images[index, steps.astype(int), bend.astype(int)] = 0
        images[index, bend.astype(int) // 2, steps.astype(int)] = 0
    return images


def pillow(image: np.ndarray) -> Image.Image:
    return Image.fromarray(image[..., 0] if image.shape[-1] == 1 else image)


def from_pillow(images: list[Image.Image]) -> torch.Tensor:
    array = np.stack([np.asarray(image) for image in images])
    array = array[..., None] if array.ndim == 3 else array
    return torch.from_numpy(array).permute(0, 3, 1, 2).float() / 255


def floats(images: np.ndarray) -> torch.Tensor:
    return to_batch(images).float() / 255


def eight_bits(images: torch.Tensor) -> torch.Tensor:
    return (images * 255 + 0.5).floor() / 255


def generator(seed: int = 0) -> torch.Generator:
    return step_generator(seed, 0)


# --- resampling -------------------------------------------------------------------------------


def slow_weights(start: int, length: int, source: int, target: int, filter: str) -> np.ndarray:
    def cubic(x: float) -> float:
        x = abs(x)
        if x < 1:
            return 1.5 * x**3 - 2.5 * x**2 + 1
        return -0.5 * x**3 + 2.5 * x**2 - 4 * x + 2 if x < 2 else 0.0

    def triangle(x: float) -> float:
        return max(0.0, 1 - abs(x))

    kernel = cubic if filter == "bicubic" else triangle
    weights = np.zeros((target, source))
    for i in range(target):
        centre = start + (i + 0.5) * length / target
        for x in range(start, start + length):
            weights[i, x] = kernel((x + 0.5 - centre) / max(length / target, 1))
        weights[i] /= weights[i].sum()
    return weights


@given(data=st.data(), filter=st.sampled_from(["bilinear", "bicubic"]))
@settings(max_examples=60, deadline=None)
def test_resize_weights_equal_a_slow_loop(data, filter):
    source, target = data.draw(st.integers(1, 40)), data.draw(st.integers(1, 40))
    start = data.draw(st.integers(0, source - 1))
    length = data.draw(st.integers(1, source - start))
    weights = resize_weights(torch.tensor([start]), torch.tensor([length]), source, target, filter)
    assert weights.shape == (1, target, source)
    assert weights.dtype == torch.float32
    np.testing.assert_allclose(
        weights[0], slow_weights(start, length, source, target, filter), atol=2e-6
    )


@pytest.mark.parametrize("filter", ["bilinear", "bicubic"])
@pytest.mark.parametrize(("source", "target"), [(105, 28), (20, 33), (1, 4)])
def test_resize_weights_are_the_same_with_and_without_a_table(monkeypatch, filter, source, target):
    length = torch.arange(1, source + 1)
    start = (source - length) // 2
    tabled = resize_weights(start, length, source, target, filter)
    monkeypatch.setattr("psco.ops.resample.TABLED", 0)
    assert resize_weights(start, length, source, target, filter).equal(tabled)


def test_resize_weights_of_a_batch_sum_to_one_and_are_zero_outside():
    start, length = torch.tensor([0, 3, 50, 7]), torch.tensor([56, 2, 6, 40])
    weights = resize_weights(start, length, 56, 28, "bicubic")
    torch.testing.assert_close(weights.sum(2), torch.ones(4, 28))
    assert weights[1, :, :3].eq(0).all()
    assert weights[1, :, 5:].eq(0).all()


@pytest.mark.parametrize("filter", ["bilinear", "bicubic"])
@pytest.mark.parametrize("channels", [1, 3])
@pytest.mark.parametrize(("side", "size"), [(56, 28), (105, 28), (20, 33), (28, 28)])
@pytest.mark.parametrize("content", ["noise", "strokes"])
def test_crop_and_resize_equal_pillow(filter, channels, side, size, content):
    images = noise(24, side, side, channels) if content == "noise" else strokes(24, side, channels)
    boxes = sample_boxes(24, side, side, (0.05, 1.0), (0.5, 2.0), generator())
    ours = crop_resize(to_batch(images), boxes, size, filter)
    assert ours.shape == (24, channels, size, size)

    crops = [
        pillow(image).crop((x, y, x + w, y + h))
        for image, (y, x, h, w) in zip(images, boxes.tolist(), strict=True)
    ]
    method = PILLOW_FILTER[filter]
    # Pillow rounds to 8 bits twice, which alone is about 0.3 of a level on average.
    direct = from_pillow([crop.resize((size, size), method) for crop in crops])
    assert (ours - direct).abs().mean() * 255 < 0.4
    # Since version 13 Pillow resizes some crops vertically first, which shows in a few pixels
    # where the bicubic filter overshoots; one axis at a time, we choose the order.
    theirs = from_pillow(
        [crop.resize((size, crop.height), method).resize((size, size), method) for crop in crops]
    )
    assert (ours - theirs).abs().max() * 255 < 1.5

    # If we round where Pillow rounds, pixels differ only in ties between two levels.
    top, left, height, width = boxes.unbind(1)
    columns = resize_weights(left, width, side, size, filter)
    rows = resize_weights(top, height, side, size, filter)
    between = eight_bits(separable(to_batch(images), torch.eye(side)[None], columns))
    rounded = eight_bits(separable(between, rows, torch.eye(size)[None]))
    assert (rounded - theirs).abs().gt(0.5 / 255).float().mean() < 0.03


@pytest.mark.parametrize("filter", ["bilinear", "bicubic"])
def test_crops_of_uint8_and_float_images_are_equal(filter):
    images = noise(8, 40, 30, 3)
    part = Crop(filter=filter)
    torch.testing.assert_close(
        part(to_batch(images), 28, generator()), part(floats(images), 28, generator())
    )


def test_large_and_small_batches_are_resampled_equally():
    images = to_batch(noise(40, 150, 100, 3))  # several buffers, the last not full
    boxes = sample_boxes(40, 150, 100, (0.2, 1.0), (0.75, 1.33), generator())
    whole = crop_resize(images, boxes, 20, "bicubic")
    single = [
        crop_resize(images[i : i + 1], boxes[i : i + 1], 20, "bicubic") for i in range(len(images))
    ]
    torch.testing.assert_close(whole, torch.cat(single))


@pytest.mark.parametrize(("height", "width"), [(40, 40), (40, 61), (90, 30), (28, 28)])
def test_resize_scales_the_short_side_and_crops_the_long_one(height, width):
    images, size = noise(4, height, width, 3), 28
    w, h = max(size, size * width // height), max(size, size * height // width)
    left, top = round((w - size) / 2), round((h - size) / 2)
    theirs = from_pillow(
        [
            pillow(image)
            .resize((w, h), Image.Resampling.BILINEAR)
            .crop((left, top, left + size, top + size))
            for image in images
        ]
    )
    ours = resize(to_batch(images), size)
    assert ours.shape == (4, 3, size, size)
    assert (ours - theirs).abs().max() * 255 < 1.5


# --- boxes ------------------------------------------------------------------------------------


@given(
    height=st.integers(1, 120),
    width=st.integers(1, 120),
    low=st.floats(0.01, 1),
    ratio=st.floats(1, 3),
    seed=st.integers(0, 2**40),
)
@settings(max_examples=150, deadline=None)
def test_boxes_lie_inside_the_image_and_keep_area_and_ratio(height, width, low, ratio, seed):
    boxes = sample_boxes(32, height, width, (low, 1.0), (1 / ratio, ratio), generator(seed))
    top, left, h, w = boxes.unbind(1)
    assert (top >= 0).all()
    assert (left >= 0).all()
    assert (h >= 1).all()
    assert (w >= 1).all()
    assert (top + h <= height).all()
    assert (left + w <= width).all()
    drawn = ~(boxes == torch.tensor(central_box(height, width, (1 / ratio, ratio)))).all(1)
    # Rounding changes a side by half a pixel at most.
    most = (h[drawn] + 0.5) * (w[drawn] + 0.5)
    assert (most >= low * height * width * (1 - 1e-9)).all()
    assert ((w[drawn] - 0.5) / (h[drawn] + 0.5) <= ratio * (1 + 1e-9)).all()
    assert ((w[drawn] + 0.5) / (h[drawn] - 0.5) >= (1 - 1e-9) / ratio).all()


@pytest.mark.parametrize(("height", "width"), [(40, 40), (28, 90), (5, 3)])
def test_boxes_equal_a_loop_of_attempts(height, width):
    scale, ratio, count = (0.3, 1.0), (0.5, 1.2), 200
    draws = torch.rand(count, 22, generator=generator(7), dtype=torch.float64).tolist()
    expected = []
    for row in draws:
        box = central_box(height, width, ratio)
        for attempt in range(10):
            area = height * width * (scale[0] + row[2 + attempt] * (scale[1] - scale[0]))
            aspect = ratio[0] * (ratio[1] / ratio[0]) ** row[12 + attempt]
            w, h = round(math.sqrt(area * aspect)), round(math.sqrt(area / aspect))
            if 0 < w <= width and 0 < h <= height:
                box = (int(row[0] * (height - h + 1)), int(row[1] * (width - w + 1)), h, w)
                break
        expected.append(list(box))
    assert sample_boxes(count, height, width, scale, ratio, generator(7)).tolist() == expected


def test_box_areas_are_uniform_and_ratios_log_uniform():
    # Ratios close to one, so that few attempts fail and the distribution is kept.
    boxes = sample_boxes(40_000, 1000, 1000, (0.2, 0.8), (0.9, 1 / 0.9), generator())
    top, left, h, w = boxes.double().unbind(1)
    area, ratio = h * w / 1e6, (w / h).log()
    assert area.mean() == pytest.approx(0.5, abs=0.005)
    assert area.std() == pytest.approx(0.6 / math.sqrt(12), abs=0.005)
    assert ratio.mean() == pytest.approx(0, abs=0.002)
    assert ratio.std() == pytest.approx(-2 * math.log(0.9) / math.sqrt(12), abs=0.002)
    for place in (top / (1000 - h), left / (1000 - w)):
        assert place.mean() == pytest.approx(0.5, abs=0.01)


@pytest.mark.parametrize(
    ("height", "width", "box"),
    [(10, 1000, (0, 493, 10, 13)), (1000, 10, (493, 0, 13, 10)), (1, 1, (0, 0, 1, 1))],
)
def test_boxes_of_elongated_images_are_central(height, width, box):
    boxes = sample_boxes(16, height, width, (0.9, 1.0), (3 / 4, 4 / 3), generator())
    assert boxes.tolist() == [list(box)] * 16


# --- flip, colour, blur -----------------------------------------------------------------------


def test_flip_changes_all_none_or_half_of_the_images():
    images = torch.rand(400, 1, 5, 6)
    assert Flip(0)(images, 0, generator()).equal(images)
    assert Flip(1)(images, 0, generator()).equal(images.flip(3))
    some = (Flip(0.5)(images, 0, generator()) != images).flatten(1).any(1)
    assert 150 < some.sum() < 250


@pytest.mark.parametrize("channels", [1, 3])
@pytest.mark.parametrize("factor", [0.0, 0.6, 1.0, 1.4])
@pytest.mark.parametrize(
    ("change", "enhance"),
    [
        (change_brightness, ImageEnhance.Brightness),
        (change_contrast, ImageEnhance.Contrast),
        (change_saturation, ImageEnhance.Color),
    ],
)
def test_brightness_contrast_and_saturation_equal_pillow(change, enhance, factor, channels):
    images = noise(3, 20, 24, channels)
    theirs = from_pillow([enhance(pillow(image)).enhance(factor) for image in images])
    ours = change(floats(images), torch.full((3, 1, 1, 1), factor))
    # Pillow truncates or rounds grey values and results to 8 bits.
    assert (ours - theirs).abs().max() * 255 < 2


@pytest.mark.parametrize("shift", [-0.5, -0.1, 0.0, 0.03, 0.25, 0.5])
def test_hue_equals_a_loop_over_pixels(shift):
    images = floats(noise(2, 6, 7, 3))
    images[0, :, 0] = 0.3  # grey pixels have no hue
    images[0, 1:, 1] = 0  # and pure red ones sit where the circle closes
    expected = torch.empty_like(images)
    for b, y, x in np.ndindex(2, 6, 7):
        h, s, v = colorsys.rgb_to_hsv(*images[b, :, y, x].tolist())
        expected[b, :, y, x] = torch.tensor(colorsys.hsv_to_rgb((h + shift) % 1, s, v))
    ours = change_hue(images, torch.full((2, 1, 1, 1), shift))
    torch.testing.assert_close(ours, expected, atol=1e-5, rtol=0)


def test_grey_equals_pillow_and_does_not_change_grey_images():
    images = noise(4, 12, 12, 3)
    ours = Grey(1)(floats(images), 0, generator())
    theirs = from_pillow([pillow(image).convert("L") for image in images])
    assert ours.shape == (4, 3, 12, 12)
    assert (ours - theirs).abs().max() * 255 < 1
    assert Grey(0)(floats(images), 0, generator()).equal(floats(images))
    single = floats(noise(4, 12, 12, 1))
    assert Grey(1)(single, 0, generator()).equal(single)


def test_jitter_applies_the_drawn_changes_in_the_order_of_each_image():
    images, jitter = floats(noise(64, 8, 8, 3)), Jitter(0.4, 0.4, 0.4, 0.2, probability=0.7)
    ours = jitter(images, 0, generator(3))
    draws = generator(3)
    applied = torch.rand(64, generator=draws) < 0.7
    factors = jitter.draw_factors(64, draws)
    orders = torch.rand(64, 4, generator=draws).argsort(1)
    changes = [change_brightness, change_contrast, change_saturation, change_hue]
    expected = images.clone()
    for b in range(64):
        for index in orders[b].tolist() if applied[b] else []:
            factor = factors[b, index].reshape(1, 1, 1, 1)
            expected[b : b + 1] = changes[index](expected[b : b + 1], factor)
    torch.testing.assert_close(ours, expected, atol=1e-5, rtol=0)
    assert len({tuple(order) for order in orders.tolist()}) > 15


def test_jitter_factors_are_within_their_ranges():
    factors = Jitter(0.4, 1.5, 0.0, 0.1).draw_factors(4000, generator())
    for column, (low, high) in enumerate([(0.6, 1.4), (0.0, 2.5), (1.0, 1.0), (-0.1, 0.1)]):
        assert factors[:, column].min() == pytest.approx(low, abs=0.01)
        assert factors[:, column].max() == pytest.approx(high, abs=0.01)


def test_jitter_of_grey_images_ignores_saturation_and_hue():
    images = floats(noise(8, 8, 8, 1))
    assert Jitter(0, 0, 0.9, 0.5, probability=1)(images, 0, generator()).equal(images)
    assert not Jitter(0.5, 0.5, probability=1)(images, 0, generator()).equal(images)


def test_jitter_with_probability_zero_changes_nothing():
    images = floats(noise(8, 8, 8, 3))
    assert Jitter(probability=0)(images, 0, generator()).equal(images)


def slow_blur(image: np.ndarray, sigma: float, reach: int) -> np.ndarray:
    taps = np.arange(-reach, reach + 1)
    kernel = np.exp(-0.5 * (taps / sigma) ** 2)
    kernel /= kernel.sum()
    padded = np.pad(image, reach, mode="edge")
    height, width = image.shape
    result = np.zeros_like(image)
    for y in range(height):
        for x in range(width):
            window = padded[y : y + 2 * reach + 1, x : x + 2 * reach + 1]
            result[y, x] = kernel @ window @ kernel
    return result


def test_blur_equals_a_slow_gaussian_with_repeated_borders():
    images = floats(noise(3, 9, 14, 3))
    sigma = torch.tensor([0.1, 0.8, 2.0])
    ours = separable(images, blur_weights(sigma, 9, 6), blur_weights(sigma, 14, 6))
    for b in range(3):
        for channel in range(3):
            expected = slow_blur(images[b, channel].double().numpy(), sigma[b].item(), 6)
            np.testing.assert_allclose(ours[b, channel], expected, atol=1e-5)


def test_the_blur_part_draws_its_width_from_the_given_range():
    images = floats(noise(2, 10, 10, 1))
    ours = Blur(sigma=(1.5, 1.5), probability=1)(images, 0, generator())
    for b in range(2):
        expected = slow_blur(images[b, 0].double().numpy(), 1.5, 9)
        np.testing.assert_allclose(ours[b, 0], expected, atol=2e-3)  # cut off at 3 deviations


def test_blur_smooths_all_none_or_half_of_the_images():
    images = floats(noise(400, 8, 8, 1))
    assert Blur(probability=0)(images, 0, generator()).equal(images)
    blurred = Blur(sigma=(1.0, 2.0), probability=1)(images, 0, generator())
    assert (blurred.std((1, 2, 3)) < 0.7 * images.std((1, 2, 3))).all()
    some = (Blur(sigma=(1.0, 2.0))(images, 0, generator()) != images).flatten(1).any(1)
    assert 150 < some.sum() < 250


# --- views ------------------------------------------------------------------------------------

ALL_PARTS = (
    Crop(),
    Flip(),
    Flip(vertical=0.5),
    Affine(),
    Elastic(),
    Stroke(),
    Erase(),
    Erase(fill="noise"),
    Jitter(),
    Grey(),
    Blur(),
)
COLOUR_VIEW = View(ALL_PARTS, 24, (0.5, 0.4, 0.3), (0.2, 0.3, 0.4))
IMAGES = to_batch(noise(16, 40, 40, 3))


@pytest.mark.parametrize("part", ALL_PARTS, ids=lambda part: type(part).__name__)
def test_a_part_draws_equally_many_numbers_for_any_images_and_copies_them(part):
    left = []
    for height, width, channels in ((30, 30, 3), (17, 40, 1)):
        images, draws = floats(noise(5, height, width, channels)), generator()
        before = images.clone()
        part(images, 12, draws)
        assert images.equal(before)
        left.append(torch.rand(3, generator=draws))
    assert left[0].equal(left[1])


def test_parts_accept_an_empty_batch():
    view = View(ALL_PARTS, 24, (0.5,), (0.5,))
    assert view(IMAGES[:0], generator()).shape == (0, 3, 24, 24)


def test_a_view_is_normalised_float_of_the_given_size_in_channels_last():
    view = COLOUR_VIEW(IMAGES, generator())
    assert view.shape == (16, 3, 24, 24)
    assert view.dtype == torch.float32
    assert view.is_contiguous(memory_format=torch.channels_last)
    pixels = view * torch.tensor([0.2, 0.3, 0.4])[:, None, None]
    pixels += torch.tensor([0.5, 0.4, 0.3])[:, None, None]
    assert -1e-5 < pixels.min() < 0.1
    assert 0.9 < pixels.max() < 1 + 1e-5


def test_without_a_crop_images_are_resized_first():
    plain = plain_view(IMAGES, 24, (0.5,), (0.25,))
    torch.testing.assert_close(plain, (resize(IMAGES, 24) - 0.5) / 0.25)
    assert View([], 24, (0.5,), (0.25,))(IMAGES, generator()).equal(plain)
    assert View([Flip(1)], 24, (0.5,), (0.25,))(IMAGES, generator()).equal(plain.flip(3))


def test_parts_before_the_crop_receive_float_images():
    view = View([Grey(1), Crop()], 24, (0.0,), (1.0,))(IMAGES, generator())
    expected = Crop()(luma(IMAGES.float() / 255).expand(-1, 3, -1, -1), 24, _after_toss())
    torch.testing.assert_close(view, expected)


def _after_toss() -> torch.Generator:
    draws = generator()
    torch.rand(16, generator=draws)
    return draws


def test_views_are_equal_for_the_same_seed_and_step_only():
    two = TwoViews(COLOUR_VIEW, COLOUR_VIEW)
    first, second = two(IMAGES, step_generator(1, 5))
    again, _ = two(IMAGES, step_generator(1, 5))
    assert first.equal(again)
    assert not first.equal(second)
    for seed, step in ((1, 6), (2, 5), (5, 1)):
        assert not first.equal(two(IMAGES, step_generator(seed, step))[0])


def test_views_neither_read_nor_change_the_global_random_state():
    torch.manual_seed(0)
    first = COLOUR_VIEW(IMAGES, generator())
    torch.manual_seed(1)
    state = torch.get_rng_state()
    assert COLOUR_VIEW(IMAGES, generator()).equal(first)
    assert torch.get_rng_state().equal(state)


def test_steps_have_separate_random_streams():
    def seeds(seed: int) -> set[int]:
        return {step_generator(seed, step).initial_seed() for step in range(50_000)}

    first = seeds(0)
    assert len(first) == 50_000  # a hash to 32 bits would repeat itself about every other time
    assert len(first & seeds(1)) < 10
    firsts = torch.stack([torch.rand(8, generator=step_generator(0, t)) for t in range(2000)])
    assert firsts.mean(0).sub(0.5).abs().max() < 0.03
    assert torch.corrcoef(firsts.T).fill_diagonal_(0).abs().max() < 0.1
    assert torch.corrcoef(torch.stack([firsts[:-1, 0], firsts[1:, 0]]))[0, 1].abs() < 0.1


def noisy(images: torch.Tensor) -> torch.Tensor:
    return images.float() / 255 + torch.rand(images.shape)


def test_user_functions_are_reproducible_views():
    two = TwoViews(noisy, COLOUR_VIEW)
    torch.manual_seed(0)
    first, own = two(IMAGES, step_generator(0, 1))
    torch.manual_seed(1)
    state = torch.get_rng_state()
    again, own_again = two(IMAGES, step_generator(0, 1))
    assert first.equal(again)
    assert own.equal(own_again)
    assert torch.get_rng_state().equal(state)
    assert not first.equal(two(IMAGES, step_generator(0, 2))[0])
    left, right = TwoViews(noisy, noisy)(IMAGES, step_generator(0, 1))
    assert not left.equal(right)


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (lambda images: images, r"torch.uint8 of shape \(16, 3, 40, 40\)"),
        (lambda images: images[0].float(), r"\(16, c, h, w\), not torch.float32 of shape \(3,"),
        (lambda images: images[:5].float(), r"of shape \(5, 3, 40, 40\)"),
        (lambda images: images.numpy(), "must return a tensor, not ndarray"),
    ],
)
def test_a_function_must_return_a_batch_of_floats(function, message):
    with pytest.raises(InputError, match=message):
        CallableView(function)(IMAGES, generator())


def test_a_view_that_cannot_be_called_is_an_error():
    with pytest.raises(InputError, match="a View or a function of images, not 'crop'"):
        TwoViews(COLOUR_VIEW, "crop")


def test_to_batch_shares_memory_where_possible_and_copies_otherwise():
    images = noise(2, 4, 5, 3)
    batch = to_batch(images)
    assert batch.shape == (2, 3, 4, 5)
    assert batch.data_ptr() == images.ctypes.data
    images.flags.writeable = False
    assert to_batch(images).equal(batch)
    assert to_batch(images[:, :, ::-1]).equal(batch.flip(3))


# --- errors and the registry ------------------------------------------------------------------


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (
            lambda: Crop(scale=(0.5, 0.2)),
            r"crop: scale must be 0 < low <= high <= 1, not \(0.5, 0.2\)",
        ),
        (lambda: Crop(scale=(0.5, 1.2)), r"crop: scale .* not \(0.5, 1.2\)"),
        (lambda: Crop(scale=(0.5,)), r"crop: scale .* not \(0.5,\)"),
        (lambda: Crop(ratio=(0, 1)), r"crop: ratio must be 0 < low <= high, not \(0, 1\)"),
        (lambda: Crop(ratio=(1, math.inf)), r"crop: ratio .* not \(1, inf\)"),
        (lambda: Crop(filter="cubic"), "crop: filter must be bilinear or bicubic, not 'cubic'"),
        (lambda: Flip(1.5), r"flip: probability must be in \[0, 1\], not 1.5"),
        (lambda: Jitter(contrast=-1), "jitter: contrast must be at least 0, not -1"),
        (lambda: Jitter(hue=0.6), r"jitter: hue must be in \[0, 0.5\], not 0.6"),
        (lambda: Jitter(probability=math.nan), "jitter: probability .* not nan"),
        (lambda: Grey(-0.1), "grey: probability .* not -0.1"),
        (lambda: Blur(sigma=(0, 2)), r"blur: sigma .* not \(0, 2\)"),
        (lambda: Blur(probability=2), "blur: probability .* not 2"),
        (lambda: View([], 0, (0.5,), (0.5,)), "size must be at least 1 pixel, not 0"),
        (lambda: View([], 8, (0.5,), (0.0,)), r"std must be greater than 0 .* not \(0.0,\)"),
        (lambda: View([], 8, (), (0.5,)), r"mean and std .* not \(\) and"),
        (
            lambda: plain_view(IMAGES, 8, (0.5, 0.5), (0.5,)),
            "3 channels need mean and std of length 1 or 3, not 2 and 1",
        ),
        (lambda: plain_view(IMAGES.float(), 8, (0.5,), (0.5,)), "must be uint8 .* torch.float32"),
        (lambda: COLOUR_VIEW(IMAGES[0], generator()), r"not torch.uint8 of shape \(3, 40, 40\)"),
        (lambda: to_batch(np.zeros((2, 4, 4))), r"not float64 of shape \(2, 4, 4\)"),
        (lambda: resize(IMAGES, 8, "box"), "filter must be one of bilinear, bicubic, not 'box'"),
    ],
)
def test_invalid_options_are_one_line_errors(make, message):
    with pytest.raises(InputError, match=message) as error:
        make()
    assert "\n" not in str(error.value)


def test_a_part_that_returns_another_size_is_an_error():
    class Half:
        resizes = True

        def __call__(self, images, size, generator):
            return images[:, :, : size // 2].float()

    with pytest.raises(InputError, match=r"shape \(16, 3, 24, 24\), not \(16, 3, 12, 40\)"):
        View([Half()], 24, (0.5,), (0.5,))(IMAGES, generator())


def test_the_registry_holds_all_parts_with_their_options():
    assert set(VIEW_PARTS) == {
        *("crop", "flip", "turn", "shift", "affine", "elastic", "stroke", "erase", "dropout"),
        *("jitter", "grey", "blur"),
    }
    options = VIEW_PARTS.options("crop", {"scale": [0.3, 1]})
    assert VIEW_PARTS["crop"](**options) == Crop(scale=(0.3, 1.0))
    assert VIEW_PARTS.options("jitter", {})["hue"] == 0.1
    with pytest.raises(InputError, match="'scal'; did you mean 'scale'"):
        VIEW_PARTS.options("crop", {"scal": (0.2, 1.0)})
    with pytest.raises(InputError, match="filter"):
        VIEW_PARTS.options("crop", {"filter": "lanczos"})
