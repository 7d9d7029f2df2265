"""The views at test time as numbers for a page: drawn once, the same for every picture."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

import torch

from psco.errors import InputError
from psco.recipes.build import build_views
from psco.recipes.recipe import Recipe
from psco.views import SameOnBatchGenerator, Stroke, View
from psco.views.motion import BendMotion, LinearMotion, Motion
from psco.views.part import Part
from psco.views.warp import NEAR, Warp, fuse

_LEVELS = {"white": [255.0], "black": [0.0]}
_DIGITS = 9  # significant ones, enough for float32


def page_views(recipe: Recipe) -> list[dict[str, Any]]:
    """Return the views that `Encoder.embed_batch` averages over, for ``assets/views.js``.

    Raises
    ------
    InputError
        If the page cannot run a part of them.
    """
    view = cast(View, build_views(recipe).view_b)
    generator = SameOnBatchGenerator().manual_seed(0)
    parts = fuse(view.parts)
    return [_draw(parts, recipe, generator) for _ in range(recipe.views.at_test)]


def _draw(parts: Sequence[Part], recipe: Recipe, generator: torch.Generator) -> dict[str, Any]:
    drawn: dict[str, Any] = {}
    for part in parts:
        if isinstance(part, Warp) and not drawn:
            drawn["warp"] = _draw_warp(part, recipe, generator)
        elif isinstance(part, Stroke) and "stroke" not in drawn:
            (amount,) = part.draw_amount(1, generator).tolist()
            drawn["stroke"] = {"amount": amount, "ink": part.ink}
        else:
            raise _cannot(type(part).__name__.lower())
    return drawn


def _draw_warp(warp: Warp, recipe: Recipe, generator: torch.Generator) -> dict[str, Any]:
    image, fill = recipe.image, warp.fill
    if fill in ("edge", "reflect"):
        raise _cannot(f"fill={fill}")
    target = warp.source_side(image.size)
    side = target if image.source_size >= NEAR * target else image.source_size
    motions = [mover.draw_motion(1, side, side, generator) for mover in warp.movers]
    levels = fill if isinstance(fill, tuple) else _LEVELS.get(fill, fill)
    return {"side": target, "fill": levels, "motions": [_numbers(motion) for motion in motions]}


def _numbers(motion: Motion) -> dict[str, Any]:
    if isinstance(motion, LinearMotion):
        return {"linear": _rounded(motion.matrix[0])}
    if isinstance(motion, BendMotion):
        return {"bend": _rounded(motion.field[0]), "grid": motion.field.shape[-1]}
    raise _cannot(type(motion).__name__)


def _rounded(values: torch.Tensor) -> list[float]:
    return [float(f"{value:.{_DIGITS}g}") for value in values.flatten().tolist()]


def _cannot(part: str) -> InputError:
    return InputError(
        f"a page cannot run the views at test of this encoder ({part}); it runs affine, elastic "
        f"and stroke; psco export SOURCE model.onnx writes any encoder"
    )
