"""Whether views still show something: views of one colour teach nothing."""

from __future__ import annotations

from dataclasses import fields, is_dataclass, replace
from typing import Any

import torch
from torch import Tensor

from psco.errors import InputError
from psco.views.pair import CallableView, TwoViews, step_generator
from psco.views.part import Part
from psco.views.view import View

LEAST_CONTRAST = 2 / 255  # between the darkest and the lightest value of a channel
MOST_BLANK = 0.5  # of the views


def blank_fraction(view: View | CallableView, images: Tensor, seed: int = 0) -> float:
    """Give the share of images whose view is of one colour, though they are not.

    Parameters
    ----------
    view
        The view to draw once of each image.
    images
        (B, C, H, W) uint8.
    seed
        Decides the random numbers.

    Returns
    -------
    float
        In [0, 1]; 0 if all images themselves are of one colour.
    """
    some = images[~_is_blank(images.float() / 255)]
    if len(some) == 0:
        return 0.0
    shown = view(some, step_generator(seed, 0))
    if isinstance(view, View):
        shown = shown * torch.tensor(view.std, device=shown.device)[:, None, None]
    return int(_is_blank(shown).sum()) / len(some)


def check_views(views: TwoViews, images: Tensor, seed: int = 0) -> None:
    """Raise InputError if most views of some images are of one colour.

    The message names the part that does it and, if one option alone is the reason, the option.
    Views that are functions of users are only judged, not taken apart.

    Parameters
    ----------
    views
        Both views.
    images
        (B, C, H, W) uint8, a sample of the data; some tens are enough.
    seed
        Decides the random numbers.
    """
    for name in ("view_a", "view_b"):
        view = getattr(views, name)
        share = blank_fraction(view, images, seed)
        if share > MOST_BLANK:
            blame = _blame(view, images, seed) if isinstance(view, View) else "the function"
            raise InputError(
                f"{name}: {share:.0%} of the views are of one colour and teach nothing, "
                f"because of {blame}"
            )


def _blame(view: View, images: Tensor, seed: int) -> str:
    """Name the first part after which most views are blank, and its option if it is only one."""

    def still_blank(parts: list[Part]) -> bool:
        return blank_fraction(replace(view, parts=parts), images, seed) > MOST_BLANK

    parts = list(view.parts)
    if still_blank([]):
        return f"a side of {view.size} px"
    until = next(n for n in range(1, len(parts) + 1) if still_blank(parts[:n]))
    before, guilty = parts[: until - 1], parts[until - 1]
    name = type(guilty).__name__.lower()
    for option, value, default in _options(guilty):
        usual = replace(guilty, **{option: default})  # type: ignore[type-var]
        if value != default and not still_blank([*before, usual]):
            return f"{name}.{option}={value!r}; the default is {default!r}"
    listed = ", ".join(f"{option}={value!r}" for option, value, _ in _options(guilty))
    return f"{name} ({listed})" if listed else name


def _options(part: Any) -> list[tuple[str, Any, Any]]:
    """List name, value and default of the options of a part; none if it is not a dataclass."""
    known = fields(part) if is_dataclass(part) else ()
    return [(field.name, getattr(part, field.name), field.default) for field in known]


def _is_blank(images: Tensor) -> Tensor:
    """Tell which images (B, C, H, W) are of one colour: (B,) bool."""
    low, high = images.amin((2, 3)), images.amax((2, 3))
    return (high - low < LEAST_CONTRAST).all(1)
