"""Views at test as fixed layers: the random numbers are drawn once and become constants.

`Encoder.embed_batch` draws the same views for every picture, so a view at test is a function of the
picture alone. Here its parts are written with operations that an exporter can follow.
"""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from psco.errors import InputError
from psco.recipes.build import build_views
from psco.recipes.recipe import Recipe
from psco.views import Crop, Flip, Part, SameOnBatchGenerator, Stroke, View, Warp, resize_weights
from psco.views.fill import Colour, fill_colour
from psco.views.motion import LinearMotion
from psco.views.warp import NEAR, PADDING, fuse

_ADVICE = "export with --views-at-test 0"


def fixed_views(recipe: Recipe) -> list[nn.Module]:
    """Return the views at test of a recipe, each a map from (n, C, side, side) to (n, C, s, s).

    Pixels are float32 in [0, 1]; ``side`` is the recipe's ``source_size`` and s its ``size``.

    Raises
    ------
    InputError
        If the views have a part that cannot be exported.
    """
    view = build_views(recipe).view_b
    assert isinstance(view, View)
    generator = SameOnBatchGenerator().manual_seed(0)  # as in Encoder.embed_batch
    side = recipe.image.source_size
    return [_fixed_view(view, side, generator) for _ in range(recipe.views.at_test)]


def plain_layers(recipe: Recipe) -> nn.Module:
    """Return the deterministic view, see `plain_view`: (n, C, side, side) to (n, C, s, s)."""
    image = recipe.image
    if image.test_crop:
        return _Centre((image.source_size - image.size) // 2, image.size)
    return _resize(image.source_size, image.size)


def _fixed_view(view: View, side: int, generator: torch.Generator) -> nn.Module:
    parts = fuse(view.parts)
    layers = [] if any(part.resizes for part in parts) else [_resize(side, view.size)]
    if layers:
        side = view.size
    for part in parts:
        layers.append(_fixed_part(part, side, view.size, generator))
        side = view.size if part.resizes else side
    return nn.Sequential(*layers)


def _fixed_part(part: Part, side: int, size: int, generator: torch.Generator) -> nn.Module:
    if isinstance(part, Warp):
        if side >= NEAR * part.source_side(size):
            raise InputError(
                f"views at test of pictures of {side} px cannot be exported; {_ADVICE}"
            )
        return _Warp(part, side, size, generator)
    if isinstance(part, Crop):
        top, left, height, width = part.draw_boxes(1, side, side, generator).unbind(1)
        rows = resize_weights(top, height, side, size, part.filter)
        return _Separable(rows, resize_weights(left, width, side, size, part.filter))
    if isinstance(part, Flip):
        motion = part.draw_motion(1, side, side, generator)
        assert isinstance(motion, LinearMotion)
        axes = [3 - axis for axis in range(2) if motion.matrix[0, axis, axis] < 0]
        return _Flip(axes)
    if isinstance(part, Stroke):
        amount = float(part.draw_amount(1, generator))
        return _Stroke(-amount if part.ink == "light" else amount, part.ink == "auto")
    name = type(part).__name__.lower()
    raise InputError(f"views at test with the part {name!r} cannot be exported; {_ADVICE}")


def _resize(side: int, size: int) -> nn.Module:
    if side == size:
        return nn.Identity()
    start = torch.zeros(1, dtype=torch.int64)
    weights = resize_weights(start, torch.full_like(start, side), side, size, "bilinear")
    return _Separable(weights, weights)


class _Centre(nn.Module):
    """The central square of ``size`` px."""

    def __init__(self, start: int, size: int) -> None:
        super().__init__()
        self._start, self._size = start, size

    def forward(self, x: Tensor) -> Tensor:
        return x.narrow(2, self._start, self._size).narrow(3, self._start, self._size)


class _Separable(nn.Module):
    """`separable` with fixed weights (1, h, H) and (1, w, W): columns first, then rows."""

    rows: Tensor
    columns: Tensor

    def __init__(self, rows: Tensor, columns: Tensor) -> None:
        super().__init__()
        self.register_buffer("rows", rows[0].clone())
        self.register_buffer("columns", columns[0].T.clone())

    def forward(self, x: Tensor) -> Tensor:
        return (self.rows @ (x @ self.columns).clamp(0, 1)).clamp(0, 1)


class _Warp(nn.Module):
    """`Warp` with fixed motions: the picture is sampled at fixed points."""

    points: Tensor

    def __init__(self, warp: Warp, side: int, size: int, generator: torch.Generator) -> None:
        super().__init__()
        points, self._per_side = warp.draw_points(1, side, side, size, generator)
        self.register_buffer("points", points.permute(0, 2, 3, 1).contiguous())  # (1, h, w, 2)
        self._fill, self._size = warp.fill, size

    def forward(self, x: Tensor) -> Tensor:
        points = self.points.expand(x.shape[0], -1, -1, -1)
        if self._fill == "edge" or self._fill == "reflect":
            mode = PADDING[self._fill]
            sampled = F.grid_sample(x, points, padding_mode=mode, align_corners=False)
        else:
            colour = _colour(x, self._fill)
            sampled = F.grid_sample(x - colour, points, align_corners=False)
            sampled = (sampled + colour).clamp(0, 1)
        if self._per_side == 1:
            return sampled
        shape = (x.shape[0], x.shape[1], self._per_side**2, self._size, self._size)
        return sampled.reshape(shape).mean(2)


class _Flip(nn.Module):
    """Flips along fixed axes."""

    def __init__(self, axes: list[int]) -> None:
        super().__init__()
        self._axes = axes

    def forward(self, x: Tensor) -> Tensor:
        return x.flip(self._axes) if self._axes else x


class _Stroke(nn.Module):
    """`grow_dark` by a fixed amount; with ``auto``, in the direction that the ink needs."""

    def __init__(self, amount: float, auto: bool) -> None:
        super().__init__()
        self._amount, self._auto = amount, auto

    def forward(self, x: Tensor) -> Tensor:
        sign: Tensor | float = -1.0 if self._amount > 0 else 1.0
        if self._auto:
            is_dark = x.mean((1, 2, 3)) <= _border_colour(x).mean((1, 2, 3))  # (n,)
            sign = torch.where(is_dark, sign, -sign)[:, None, None, None]
        grown = x * sign  # regions to grow are bright now
        left = abs(self._amount)
        for _ in range(math.ceil(left)):
            brightest = F.max_pool2d(grown, 3, stride=1, padding=1)
            grown = grown + min(left, 1.0) * (brightest - grown)
            left -= 1
        return grown * sign


def _colour(x: Tensor, fill: Colour) -> Tensor:
    return _border_colour(x) if fill == "auto" else fill_colour(x, fill)


def _border_colour(x: Tensor) -> Tensor:
    """Return the median of the border pixels by sorting them, since ONNX has no median."""
    last = x.shape[3] - 1
    sides = [x[:, :, 0], x[:, :, last], x[:, :, :, 0], x[:, :, :, last]]
    border = torch.cat(sides, 2)  # (n, C, 4 side)
    half = 2 * x.shape[3] + 1
    return border.topk(half, dim=2).values[:, :, half - 1, None, None]
