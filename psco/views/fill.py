"""What a view shows outside the image: a colour, or the image continued."""

from __future__ import annotations

from typing import Literal, get_args

import torch
from torch import Tensor

from psco.errors import InputError, counted

ColourName = Literal["white", "black", "mean", "auto"]
Continuation = Literal["edge", "reflect"]
Colour = ColourName | tuple[float, ...]
Fill = ColourName | Continuation | tuple[float, ...]
COLOURS, CONTINUATIONS = get_args(ColourName), get_args(Continuation)


def check_fill(part: str, fill: object, names: tuple[str, ...]) -> None:
    """Raise InputError unless ``fill`` is one of the names or 1 or 3 levels from 0 to 255."""
    levels = fill if isinstance(fill, tuple) else ()
    if fill in names or (len(levels) in (1, 3) and all(0 <= level <= 255 for level in levels)):
        return
    raise InputError(
        f"{part}: fill must be {', '.join(names)}, or 1 or 3 levels from 0 to 255, not {fill!r}"
    )


def fill_colour(images: Tensor, fill: Colour) -> Tensor:
    """Return the fill colour.

    Parameters
    ----------
    images
        (B, C, H, W) float32 in [0, 1].
    fill
        ``"white"``; ``"black"``; ``"mean"``, the mean of each image; ``"auto"``, the colour of the
        border of each image; or levels from 0 to 255, one for all channels or one for each.

    Returns
    -------
    Tensor
        (B, C, 1, 1) or (C or 1, 1, 1), in [0, 1].

    Raises
    ------
    InputError
        If the number of levels is neither 1 nor the number of channels.
    """
    if fill == "mean":
        return images.mean((2, 3), keepdim=True)
    if fill == "auto":
        return border_colour(images)
    if isinstance(fill, tuple) and len(fill) not in (1, images.shape[1]):
        channels = images.shape[1]
        allowed = "1 level" if channels == 1 else f"1 or {channels} levels"
        raise InputError(
            f"fill must have {allowed} for images with {counted(channels, 'channel')}, not {fill!r}"
        )
    levels = {"white": (255.0,), "black": (0.0,)}.get(fill) if isinstance(fill, str) else fill
    return torch.tensor(levels, device=images.device)[:, None, None] / 255


def border_colour(images: Tensor) -> Tensor:
    """Return the median of the border pixels: (B, C, H, W) to (B, C, 1, 1).

    It is the paper of a drawing even if some ink touches the border.
    """
    rows, columns = images[:, :, [0, -1]], images[:, :, :, [0, -1]]
    border = torch.cat([rows.flatten(2), columns.flatten(2)], 2)  # (B, C, 2W + 2H)
    return border.median(2).values[:, :, None, None]
