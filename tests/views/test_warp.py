"""Affine and elastic parts against slow loops, and the equivalence of fused parts."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from psco.errors import InputError
from psco.views import (
    VIEW_PARTS,
    Affine,
    Crop,
    Elastic,
    Flip,
    Grey,
    Jitter,
    Turn,
    TwoViews,
    View,
    Warp,
    resize,
    step_generator,
    to_batch,
)
from psco.views.affine import affine_matrices
from psco.views.motion import BendMotion, LinearMotion, view_points
from psco.views.warp import fuse, sample, shrink

CPU = torch.device("cpu")
STILL = {"rotation": 0.0, "shear": 0.0, "log_scale": (0.0, 0.0), "shift": 0.0}


def generator(seed: int = 0) -> torch.Generator:
    return step_generator(seed, 0)


def noise(count: int, height: int, width: int, channels: int, seed: int = 0) -> torch.Tensor:
    rng = np.random.default_rng(seed)
    return to_batch(rng.integers(0, 256, (count, height, width, channels), dtype=np.uint8))


def smooth(count: int, side: int, channels: int = 1) -> torch.Tensor:
    """Waves without fine detail, on which all ways of resampling nearly agree."""
    line = torch.linspace(0, 2 * math.pi, side)
    phase = torch.arange(count * channels).view(count, channels, 1, 1)
    waves = torch.sin(line[:, None] + phase) * torch.cos(line + 0.5 * phase)
    return ((waves + 1) * 127).round().to(torch.uint8)


# --- sampling ---------------------------------------------------------------------------------


def slow_lookup(image: np.ndarray, x: float, y: float, outside) -> float:
    """Interpolate an image (H, W) at a point; ``outside(row, column)`` is used beyond it."""
    height, width = image.shape
    half = min(height, width) / 2
    column, row = x * half + (width - 1) / 2, y * half + (height - 1) / 2
    left, top = math.floor(column), math.floor(row)
    total = 0.0
    for r in (top, top + 1):
        for c in (left, left + 1):
            weight = (1 - abs(row - r)) * (1 - abs(column - c))
            inside = 0 <= r < height and 0 <= c < width
            total += weight * (image[r, c] if inside else outside(r, c))
    return total


@pytest.mark.parametrize(("height", "width"), [(9, 9), (7, 12), (11, 6)])
@pytest.mark.parametrize("fill", ["white", "black", "mean", "auto", "edge", (51.0,)])
def test_sampling_equals_a_loop_over_points(height, width, fill):
    images = noise(3, height, width, 1).float() / 255
    points = torch.rand(3, 2, 5, 4, generator=generator()) * 3 - 1.5
    ours = sample(images, points, fill)
    for b in range(3):
        image = images[b, 0].double().numpy()
        border = np.concatenate([image[0], image[-1], image[:, 0], image[:, -1]])
        colours = {
            "white": 1.0,
            "black": 0.0,
            "mean": image.mean(),
            "auto": np.sort(border)[(len(border) - 1) // 2],
            (51.0,): 0.2,
        }

        def outside(row, column, image=image, colours=colours):
            if fill == "edge":
                return image[np.clip(row, 0, height - 1), np.clip(column, 0, width - 1)]
            return colours[fill]

        for place in np.ndindex(5, 4):
            x, y = points[b, 0][place].item(), points[b, 1][place].item()
            assert ours[b, 0][place].item() == pytest.approx(
                slow_lookup(image, x, y, outside), abs=1e-5
            )


def test_fill_reflect_mirrors_the_image():
    images = noise(2, 8, 8, 3).float() / 255
    beyond = view_points(8, 1, CPU).repeat(2, 1, 1, 1)
    beyond[:, 0] += 2  # one image further to the right
    torch.testing.assert_close(sample(images, beyond, "reflect"), images.flip(3))


@pytest.mark.parametrize("per_side", [1, 2, 3])
def test_view_points_are_the_centres_of_equal_cells_block_by_block(per_side):
    size = 5
    points = view_points(size, per_side, CPU)[0].view(2, per_side, per_side, size, size)
    fine = size * per_side
    for j, i, row, column in np.ndindex(per_side, per_side, size, size):
        x = (column * per_side + i + 0.5) / fine * 2 - 1
        y = (row * per_side + j + 0.5) / fine * 2 - 1
        assert points[0, j, i, row, column].item() == pytest.approx(x, abs=1e-6)
        assert points[1, j, i, row, column].item() == pytest.approx(y, abs=1e-6)


@pytest.mark.parametrize(("side", "channels"), [(105, 1), (60, 3)])
def test_shrinking_equals_pillow_and_skips_slightly_larger_images(side, channels):
    images = noise(4, side, side, channels)
    small = shrink(images, 28)
    assert small.dtype == torch.uint8
    for image, ours in zip(images.permute(0, 2, 3, 1).numpy(), small, strict=True):
        picture = Image.fromarray(image[..., 0] if channels == 1 else image)
        theirs = np.asarray(picture.resize((28, 28), Image.Resampling.BILINEAR))
        difference = ours.permute(1, 2, 0).numpy().astype(int) - theirs.reshape(28, 28, channels)
        assert np.abs(difference).max() <= 1
    assert shrink(images, round(side / 1.4)) is images


# --- motions ----------------------------------------------------------------------------------


@given(
    rotation=st.floats(-180, 180),
    shear=st.floats(-1, 1),
    scale=st.tuples(st.floats(0.2, 4), st.floats(0.2, 4)),
    shift=st.tuples(st.floats(-1, 1), st.floats(-1, 1)),
    point=st.tuples(st.floats(-1, 1), st.floats(-1, 1)),
)
def test_affine_motions_invert_scale_shear_rotation_and_shift(rotation, shear, scale, shift, point):
    angle = math.radians(rotation)
    matrix = affine_matrices(*(torch.tensor([v]) for v in (angle, shear, scale, shift)))
    x, y = point[0] * scale[0], point[1] * scale[1]
    x += shear * y
    x, y = x * math.cos(angle) - y * math.sin(angle), x * math.sin(angle) + y * math.cos(angle)
    shown = torch.tensor([x + shift[0], y + shift[1]]).view(1, 2, 1, 1)
    back = LinearMotion(matrix)(shown).flatten().tolist()
    assert back == pytest.approx(point, abs=1e-3)


def slow_cubic(values: np.ndarray, x: float, y: float) -> float:
    """Interpolate values (g, g) on a grid from -1 to 1 with the cubic a = -0.75."""

    def kernel(t: float) -> float:
        t = abs(t)
        if t < 1:
            return 1.25 * t**3 - 2.25 * t**2 + 1
        return -0.75 * (t**3 - 5 * t**2 + 8 * t - 4) if t < 2 else 0.0

    g = len(values)
    column, row = ((v + 1) / 2 * (g - 1) for v in (x, y))
    total = 0.0
    for r in range(math.floor(row) - 1, math.floor(row) + 3):
        for c in range(math.floor(column) - 1, math.floor(column) + 3):
            nearest = values[np.clip(r, 0, g - 1), np.clip(c, 0, g - 1)]
            total += kernel(row - r) * kernel(column - c) * nearest
    return total


@pytest.mark.parametrize("grid", [2, 6])
def test_bends_equal_a_loop_for_shared_and_separate_points(grid):
    field = torch.randn(3, 2, grid, grid, generator=generator()) * 0.2
    shared = view_points(4, 2, CPU)
    for points in (shared, shared.repeat(3, 1, 1, 1) * 1.2 + 0.1):
        ours = BendMotion(field)(points)
        assert ours.shape == (3, 2, 16, 4)
        for b, row, column in np.ndindex(3, 16, 4):
            x, y = points[b % len(points), :, row, column].tolist()
            for axis, at in enumerate((x, y)):
                bent = at + slow_cubic(field[b, axis].numpy(), x, y)
                assert ours[b, axis, row, column].item() == pytest.approx(bent, abs=1e-5)
    torch.testing.assert_close(
        BendMotion(field)(shared), BendMotion(field)(shared.repeat(3, 1, 1, 1))
    )


def test_affine_parameters_are_uniform_in_their_ranges():
    part = Affine(rotation=0, shear=0, log_scale=(-0.4, 0.3), shift=0.5)
    matrix = part.draw_motion(4000, 9, 9, generator()).matrix
    for axis in (0, 1):
        log_scale = -matrix[:, axis, axis].log()
        assert log_scale.min() == pytest.approx(-0.4, abs=0.01)
        assert log_scale.max() == pytest.approx(0.3, abs=0.01)
        assert log_scale.mean() == pytest.approx(-0.05, abs=0.01)
        shift = -matrix[:, axis, 2] / matrix[:, axis, axis]
        assert shift.min() == pytest.approx(-0.5, abs=0.01)
        assert shift.max() == pytest.approx(0.5, abs=0.01)
    turned = Affine(**{**STILL, "rotation": 90.0}).draw_motion(4000, 9, 9, generator()).matrix
    angle = torch.atan2(turned[:, 0, 1], turned[:, 0, 0])
    assert angle.abs().max() == pytest.approx(math.pi / 2, abs=0.01)
    slanted = Affine(**{**STILL, "shear": 0.7}).draw_motion(4000, 9, 9, generator()).matrix
    assert slanted[:, 0, 1].abs().max() == pytest.approx(0.7, abs=0.01)
    assert slanted[:, 1, 0].abs().max() == 0


def test_elastic_displacements_have_the_given_standard_deviation():
    field = Elastic(grid=5, sigma=0.07).draw_motion(2000, 9, 9, generator()).field
    assert field.shape == (2000, 2, 5, 5)
    assert field.std() == pytest.approx(0.07, rel=0.02)
    assert field.mean() == pytest.approx(0, abs=0.002)


# --- parts and views --------------------------------------------------------------------------


@pytest.mark.parametrize("part", [Affine(**STILL), Elastic(sigma=0)], ids=["affine", "elastic"])
@pytest.mark.parametrize("channels", [1, 3])
def test_parts_with_zero_amounts_return_the_image(part, channels):
    images = noise(4, 28, 28, channels)
    torch.testing.assert_close(part(images, 28, generator()), images.float() / 255)
    # From larger sources they return the antialiased image, computed differently than in Pillow.
    large = smooth(4, 105, channels)
    torch.testing.assert_close(part(large, 28, generator()), resize(large, 28), atol=0.01, rtol=0)


@pytest.mark.parametrize("shape", [(20, 20), (20, 13), (12, 21)])
def test_a_view_equals_a_loop_over_its_pixels(shape):
    images = noise(3, *shape, 1)
    affine, elastic, size = Affine(), Elastic(grid=4, sigma=0.05), 12
    ours = View([affine, elastic], size, (0.0,), (1.0,))(images, generator(5))

    draws = generator(5)
    matrix = affine.draw_motion(3, *shape, draws).matrix.double().numpy()
    field = elastic.draw_motion(3, *shape, draws).field.double().numpy()
    per_side = 2 if min(shape) > 1.5 * size else 1
    for b in range(3):
        image = images[b, 0].double().numpy() / 255
        for row, column in np.ndindex(size, size):
            values = []
            for j, i in np.ndindex(per_side, per_side):
                x = (column + (i + 0.5) / per_side) / size * 2 - 1
                y = (row + (j + 0.5) / per_side) / size * 2 - 1
                bent = [x + slow_cubic(field[b, 0], x, y), y + slow_cubic(field[b, 1], x, y)]
                at = matrix[b] @ [*bent, 1]
                values.append(slow_lookup(image, *at, lambda r, c: 1.0))
            assert ours[b, 0, row, column].item() == pytest.approx(np.mean(values), abs=1e-4)


def test_fused_parts_compose_their_motions_with_the_same_random_numbers():
    parts = (Crop(), Turn(), Affine(), Elastic(), Flip(vertical=0.3))
    images = noise(6, 40, 30, 3)
    ours = View(parts, 24, (0.0,), (1.0,))(images, generator(3))

    draws, motions, shape = generator(3), [], (40, 30)
    for part in parts:
        motions.append(part.draw_motion(6, *shape, draws))
        shape = (30, 30)
    points = view_points(24, 1, CPU)
    for motion in reversed(motions):
        points = motion(points)
    torch.testing.assert_close(ours, sample(images.float() / 255, points, "white"))


@pytest.mark.parametrize("part", [Crop(filter="bilinear"), Flip(vertical=0.5), Turn()], ids=repr)
def test_movers_are_equal_with_and_without_a_warp(part):
    images = smooth(16, 64, 3)
    alone = View([part], 32, (0.0,), (1.0,))(images, generator())
    fused = View([part, Affine(**STILL)], 32, (0.0,), (1.0,))(images, generator())
    assert (alone - fused).abs().mean() < 0.004
    assert (alone - fused)[:, :, 2:-2, 2:-2].abs().max() < 0.05


def test_only_consecutive_movers_with_a_warp_among_them_are_fused():
    crop, flip, affine, elastic, jitter = Crop(), Flip(), Affine(), Elastic(), Jitter()
    assert fuse([crop, flip, jitter]) == [crop, flip, jitter]
    assert fuse([flip, affine, jitter, elastic]) == [
        Warp((flip, affine)),
        jitter,
        Warp((elastic,)),
    ]
    assert fuse([]) == []


def test_the_views_of_the_paper_are_not_fused():
    images = noise(8, 40, 40, 1)
    view = View([Crop(), Flip()], 28, (0.0,), (1.0,))(images, generator())
    draws = generator()
    assert view.equal(Flip()(Crop()(images, 28, draws), 28, draws))


@pytest.mark.parametrize("side", [105, 56, 28])
def test_both_views_equal_each_view_computed_alone(side):
    images = noise(8, side, side, 1)
    view_a = View([Affine(), Elastic()], 28, (0.5,), (0.25,))
    view_b = View([Crop(), Affine(), Elastic()], 28, (0.5,), (0.25,))
    for first, second in ((view_a, view_a), (view_a, view_b), (view_b, view_b)):
        draws = generator()
        expected = first(images, draws), second(images, draws)
        ours = TwoViews(first, second)(images, generator())
        assert ours[0].equal(expected[0])
        assert ours[1].equal(expected[1])


def test_strong_enlargements_use_larger_sources():
    assert Warp((Affine(),)).source_side(28) == 56
    assert 56 < Warp((Affine(log_scale=(0, 0.7)),)).source_side(28) < 112
    assert Warp((Crop(), Affine())).source_side(28) > 90
    assert Warp((Crop(scale=(0.001, 1)), Affine())).source_side(28) == 112


def test_pixels_outside_the_image_have_the_fill_colour():
    images = torch.full((5, 3, 20, 20), 100, dtype=torch.uint8)
    images[:, 1] = 200
    away = {**STILL, "log_scale": (-1.0, -1.0)}
    for fill, corner in {
        "white": [1, 1, 1],
        "black": [0, 0, 0],
        "auto": [100 / 255, 200 / 255, 100 / 255],
        "edge": [100 / 255, 200 / 255, 100 / 255],
        (255.0, 0.0, 51.0): [1, 0, 0.2],
    }.items():
        shown = Affine(**away, fill=fill)(images, 20, generator())
        torch.testing.assert_close(shown[:, :, 0, 0], torch.tensor(corner).float().expand(5, 3))
        torch.testing.assert_close(shown[:, 0, 10, 10], torch.full((5,), 100 / 255))


def test_the_border_colour_is_that_of_the_paper_even_if_ink_touches_it():
    images = torch.zeros(1, 1, 10, 10)
    images[0, 0, 3:7, :4] = 1  # light ink that reaches the left edge
    shown = Affine(**{**STILL, "log_scale": (-1.0, -1.0)}, fill="auto")(images, 10, generator())
    assert shown[0, 0, 0, 0] == 0


def test_options_of_affine_and_elastic_are_read_from_recipes():
    options = VIEW_PARTS.options("affine", {"log_scale": [-0.1, 0.1], "fill": [10, 20, 30]})
    assert VIEW_PARTS["affine"](**options) == Affine(log_scale=(-0.1, 0.1), fill=(10.0, 20.0, 30.0))
    assert VIEW_PARTS.options("elastic", {}) == {"grid": 6, "sigma": 0.03, "fill": "white"}
    with pytest.raises(InputError, match="did you mean 'elastic'"):
        VIEW_PARTS.options("elastc", {})


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Affine(rotation=-5), r"affine: rotation must be in \[0, 180\], not -5"),
        (lambda: Affine(shear=2), r"affine: shear must be in \[0, 1\], not 2"),
        (lambda: Affine(log_scale=(0.2, -0.2)), r"log_scale must be -1.5 <= low <= high <= 1.5"),
        (lambda: Affine(log_scale=(0, 3)), r"affine: log_scale .* not \(0, 3\)"),
        (lambda: Affine(shift=1.5), r"affine: shift must be in \[0, 1\], not 1.5"),
        (lambda: Affine(shift=2.5), r"shift .* not 2.5; .* show nothing of the image"),
        (lambda: Affine(fill="green"), "affine: fill must be white, black, .* not 'green'"),
        (lambda: Affine(fill=(300.0,)), r"affine: fill .* from 0 to 255, not \(300.0,\)"),
        (lambda: Elastic(grid=1), r"elastic: grid must be in \[2, 16\], not 1"),
        (lambda: Elastic(sigma=math.nan), r"elastic: sigma must be in \[0, 0.3\], not nan"),
        (
            lambda: View([Affine(fill="auto"), Elastic()], 8, (0.5,), (0.5,)),
            "affine has fill='auto' and elastic has fill='white': .* need the same fill",
        ),
        (
            lambda: Affine(fill=(1.0, 2.0, 3.0))(noise(2, 8, 8, 1), 8, generator()),
            "fill must have 1 level for images with 1 channel, not",
        ),
        (
            lambda: Crop(scale=(0.001, 0.002))(noise(2, 28, 28, 1), 8, generator()),
            r"crop: with scale=\(0.001, 0.002\) every view of 28 x 28 px images would be of one",
        ),
        (
            lambda: View([Grey()], 8, (0.5,), (0.5,))(noise(2, 8, 8, 4), generator()),
            r"1 or 3 channels, not 4",
        ),
        (
            lambda: View([Affine()], 8, (0.5,) * 3, (0.5,) * 3)(noise(2, 8, 8, 1), generator()),
            r"images with 1 channel need mean and std of length 1, not 3 and 3; set",
        ),
    ],
)
def test_invalid_options_are_one_line_errors(make, message):
    with pytest.raises(InputError, match=message) as error:
        make()
    assert "\n" not in str(error.value)
