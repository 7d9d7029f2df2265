"""Checks for blank views, which have a single colour and teach nothing."""

from __future__ import annotations

from dataclasses import fields, is_dataclass, replace
from typing import Any

import torch
from torch import Tensor

from psco.errors import InputError
from psco.views.pair import CallableView, TwoViews, step_generator
from psco.views.part import Part
from psco.views.view import View

MIN_CONTRAST = 2 / 255  # between the least and the greatest value of a channel
MAX_BLANK = 0.5  # fraction of the views


def blank_fraction(view: View | CallableView, images: Tensor, seed: int = 0) -> float:
    """Return the fraction of images whose view is blank although the image is not.

    Parameters
    ----------
    view
        Drawn once for each image.
    images
        (B, C, H, W) uint8.
    seed
        Seed of the random numbers.

    Returns
    -------
    float
        In [0, 1]; 0 if all images are blank themselves.
    """
    with_content = images[~_is_blank(images.float() / 255)]
    if len(with_content) == 0:
        return 0.0
    shown = view(with_content, step_generator(seed, 0))
    if isinstance(view, View):
        shown = shown * torch.tensor(view.std, device=shown.device)[:, None, None]
    return int(_is_blank(shown).sum()) / len(with_content)


def check_views(views: TwoViews, images: Tensor, seed: int = 0) -> None:
    """Raise InputError if most views of a sample of images are blank.

    The message names the responsible part and, if a single option is the reason, the option. Of a
    view that is a user's function, only the result is checked.

    Parameters
    ----------
    views
        Both views.
    images
        (B, C, H, W) uint8, a sample of the data; a few dozen are enough.
    seed
        Seed of the random numbers.
    """
    for name in ("view_a", "view_b"):
        view = getattr(views, name)
        fraction = blank_fraction(view, images, seed)
        if fraction > MAX_BLANK:
            cause = _find_cause(view, images, seed) if isinstance(view, View) else "the function"
            raise InputError(
                f"{name}: {fraction:.0%} of the views have a single colour, because of {cause}"
            )


def _find_cause(view: View, images: Tensor, seed: int) -> str:
    """Return the first part after which most views are blank, and its option if it is only one."""

    def still_blank(parts: list[Part]) -> bool:
        return blank_fraction(replace(view, parts=parts), images, seed) > MAX_BLANK

    parts = list(view.parts)
    if still_blank([]):
        return f"the size of {view.size} px"
    until = next(n for n in range(1, len(parts) + 1) if still_blank(parts[:n]))
    before, cause = parts[: until - 1], parts[until - 1]
    name = type(cause).__name__.lower()
    for option, value, default in _options(cause):
        with_default = replace(cause, **{option: default})  # type: ignore[type-var]
        if value != default and not still_blank([*before, with_default]):
            return f"{name}.{option}={value!r}; the default is {default!r}"
    listed = ", ".join(f"{option}={value!r}" for option, value, _ in _options(cause))
    return f"{name} ({listed})" if listed else name


def _options(part: Any) -> list[tuple[str, Any, Any]]:
    """Return name, value and default of the options of a part; none if it is not a dataclass."""
    options = fields(part) if is_dataclass(part) else ()
    return [(field.name, getattr(part, field.name), field.default) for field in options]


def _is_blank(images: Tensor) -> Tensor:
    """Return which images (B, C, H, W) have a single colour: (B,) bool."""
    low, high = images.amin((2, 3)), images.amax((2, 3))
    return (high - low < MIN_CONTRAST).all(1)
