"""A sheet of pictures: original images beside samples of both views of a recipe."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from PIL import Image, ImageDraw, ImageFont
from torch import Tensor

from psco.data import load_dataset
from psco.errors import InputError
from psco.files.atomic import atomic_path
from psco.recipes.build import build_views
from psco.recipes.recipe import Recipe, default_recipe, load_recipe
from psco.views import blank_fraction, check_views, resize, step_generator, to_batch

CELL = 84  # smallest side of a picture on the sheet, in pixels
GAP = 4  # between pictures
MARGIN = 12  # around the sheet
LINE = 18  # height of a line of text
PAPER = (232, 234, 238)  # grey, so that white pictures have a visible edge
TEXT = (50, 50, 50)
SAMPLED = 256  # images in which blank views are counted
FORMATS = (".png", ".jpg", ".jpeg", ".webp")


@dataclass(frozen=True)
class ViewSheet:
    """A sheet of pictures, and facts about the views.

    Parameters
    ----------
    picture
        The sheet.
    recipe
        The resolved settings.
    blank
        Fraction of views of a single colour, in [0, 1], for ``view_a`` and ``view_b``.
    notes
        Sentences about settings that may surprise.
    """

    picture: Image.Image
    recipe: Recipe
    blank: dict[str, float]
    notes: tuple[str, ...]

    def save(self, path: str | Path) -> Path:
        """Write the sheet to a picture file, completely or not at all."""
        target = Path(path)
        check_format(target)
        with atomic_path(target) as temporary:
            self.picture.save(temporary)
        return target


def view_sheet(
    data: object,
    *,
    recipe: str | Path | Recipe | None = None,
    overrides: Sequence[str] = (),
    images: int = 8,
    views: int = 6,
    seed: int = 0,
    split: str = "train",
    root: str | Path | None = None,
    progress: bool = True,
) -> ViewSheet:
    """Draw samples of a recipe's views beside the original images.

    Parameters
    ----------
    data
        Anything that `load_dataset` takes.
    recipe
        A recipe, its name or file; by default see `choose_recipe`.
    overrides
        Settings that win over the recipe, as ``"views.view_a.flip=null"``.
    images
        Number of rows, at least 1, one for each image; the images are drawn at random.
    views
        Samples of each of the two views, at least 1.
    seed
        Decides the images and the views.
    split
        ``train``, ``val`` or ``test`` of a named data set.
    root
        Folder of a named data set; by default ``PSCO_DATA``.
    progress
        Show progress bars on stderr while images are decoded.

    Raises
    ------
    InputError
        If an argument is wrong, or most views are of a single colour.
    """
    for name, value in {"images": images, "views": views}.items():
        if value < 1:
            raise InputError(f"{name} must be at least 1, got {value}")
    resolved = load_recipe(recipe or default_recipe(data), overrides)
    image = resolved.image
    found = load_dataset(
        data,
        split,
        root,
        size=image.source_size,
        channels=image.channels,
        aspect=image.aspect,
        progress=progress,
    )
    order = np.random.Generator(np.random.Philox(seed)).permutation(len(found))[:SAMPLED]
    sample = to_batch(found.images[np.sort(order)])
    pair = build_views(resolved)
    check_views(pair, sample, seed)

    shown = to_batch(found.images[order[:images]])
    drawn = [pair(shown, step_generator(seed, number)) for number in range(views)]
    columns = {"original": [to_pixels(resize(shown, max(CELL, image.size)))]}
    for place, name in enumerate(("view_a", "view_b")):
        parts = ", ".join(getattr(resolved.views, name)) or "resized only"
        # Online views of one image come first, then those of the next draw.
        pictures = [part for both in drawn for part in torch.split(both[place], len(shown))][:views]
        columns[f"{name}: {parts}"] = [_undo_norm(part, image.mean, image.std) for part in pictures]
    blank = {
        name: blank_fraction(getattr(pair, name), sample, seed) for name in ("view_a", "view_b")
    }
    title = f"{found.name} ({found.split}), {image.size} px from {shown.shape[-1]} px, seed {seed}"
    return ViewSheet(contact_sheet(columns, title), resolved, blank, _notes(resolved))


def contact_sheet(columns: dict[str, list[np.ndarray]], title: str = "") -> Image.Image:
    """Return pictures laid out in rows, in groups of columns with a caption each.

    Parameters
    ----------
    columns
        The columns (n, h, w, C) uint8 below each caption, all with the same n. Small pictures are
        enlarged by a whole factor, without interpolation.
    title
        A line above the sheet; none if empty.
    """
    cells = {caption: [_enlarged(column) for column in group] for caption, group in columns.items()}
    side = max(cell.shape[1] for group in cells.values() for cell in group)
    rows = len(next(iter(cells.values()))[0])
    widths = {caption: len(group) * (side + GAP) - GAP for caption, group in cells.items()}
    head = LINE * (2 if title else 1) + GAP
    width = sum(widths.values()) + MARGIN * (len(cells) + 1)
    height = head + rows * (side + GAP) - GAP + 2 * MARGIN
    sheet = Image.new("RGB", (width, height), PAPER)
    pen, font = ImageDraw.Draw(sheet), ImageFont.load_default(13)
    if title:
        pen.text((MARGIN, MARGIN - 2), title, TEXT, font)
    left = MARGIN
    for caption, group in cells.items():
        text = _fit(caption, widths[caption] + MARGIN - GAP, font)
        pen.text((left, MARGIN + head - LINE - GAP), text, TEXT, font)
        for column, cell in enumerate(group):
            for row, pixels in enumerate(cell):
                place = (left + column * (side + GAP), MARGIN + head + row * (side + GAP))
                sheet.paste(Image.fromarray(pixels), place)
        left += widths[caption] + MARGIN
    return sheet


def to_pixels(images: Tensor) -> np.ndarray:
    """Convert (B, C, h, w) floats, clipped to [0, 1], to (B, h, w, 3) uint8."""
    levels = (images.clamp(0, 1) * 255).round().to(torch.uint8)
    pixels: np.ndarray = levels.expand(-1, 3, -1, -1).permute(0, 2, 3, 1).contiguous().numpy()
    return pixels


def check_format(path: Path) -> None:
    """Raise InputError unless the suffix of a path is that of a picture."""
    if path.suffix.lower() not in FORMATS:
        raise InputError(f"a sheet is a {', '.join(FORMATS)} file, got {str(path)!r}; use .png")


def _undo_norm(views: Tensor, mean: Sequence[float], std: Sequence[float]) -> np.ndarray:
    scale, shift = (torch.tensor(values)[:, None, None] for values in (std, mean))
    return to_pixels(views * scale + shift)


def _enlarged(pictures: np.ndarray) -> np.ndarray:
    factor = max(1, -(-CELL // pictures.shape[1]))
    return pictures.repeat(factor, axis=1).repeat(factor, axis=2)


def _fit(text: str, width: int, font: ImageFont.FreeTypeFont | ImageFont.ImageFont) -> str:
    """Return a text, shortened if it is wider than ``width`` pixels."""
    if font.getlength(text) <= width:
        return text
    while text and font.getlength(text + "…") > width:
        text = text[:-1]
    return text + "…"


def _notes(recipe: Recipe) -> tuple[str, ...]:
    """Return notes about settings without effect."""
    has_one_channel = recipe.image.channels == 1
    return tuple(
        f"the part grey of {name} has no effect on images with one channel"
        for name in ("view_a", "view_b")
        if has_one_channel and "grey" in getattr(recipe.views, name)
    )
