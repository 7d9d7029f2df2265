"""Render the pictures of docs/views.md with the code of psco.views, one per registered part.

    python docs/render_views.py [FOLDER]

Each part is applied alone, with its default options, to a drawing of the built-in glyphs, a boat or
a slide of cells. The boat and the cells are drawn here. Parts with a probability are applied to
every image, except where the unchanged images are the point.
"""

from __future__ import annotations

import sys
from dataclasses import fields, replace
from pathlib import Path

import numpy as np
from PIL import Image, ImageDraw

from psco.data.sets.glyphs import draw_glyphs
from psco.report.viewsheet import contact_sheet, to_pixels
from psco.views import VIEW_PARTS, View, resize, step_generator, to_batch

FOLDER = Path(__file__).parent / "views"
SUBJECTS = {"turn": "cells", **dict.fromkeys(("affine", "dropout", "elastic", "stroke"), "glyph")}
SAMPLES = 8
SIZE = 84  # pixels of a view
SOURCE = 168  # pixels of the pictures that are drawn here


def render(name: str) -> Image.Image:
    """Return the picture of one part: the original and samples."""
    part = VIEW_PARTS[name]()
    if any(field.name == "probability" for field in fields(part)):
        # A flip or a conversion to grey is easier to see beside images that were left alone.
        part = replace(part, probability=0.5 if name in ("flip", "grey") else 1.0)
    subject = {"glyph": glyph, "boat": boat, "cells": cells}[SUBJECTS.get(name, "boat")]()
    images = to_batch(subject[None])
    size = min(SIZE, subject.shape[0])  # glyphs have the size that they have in training
    view = View([part], size, (0.0,), (1.0,))
    shown = [to_pixels(view(images, step_generator(0, step))) for step in range(SAMPLES)]
    return contact_sheet({"original": [to_pixels(resize(images, size))], name: shown})


def glyph() -> np.ndarray:
    """Return a drawing of the glyphs, (28, 28, 1) uint8."""
    return draw_glyphs([12], seed=0, characters=8, drawings=2)[6, 0][..., None]


def boat() -> np.ndarray:
    """Draw a boat with a red sail on a blue sea, (168, 168, 3) uint8."""
    side = 4 * SOURCE  # drawn larger, for smooth edges
    down = np.linspace(0, 1, side)[:, None, None]
    sky = np.array([120, 180, 235]) * (1 - down) + np.array([235, 240, 245]) * down
    picture = Image.fromarray(np.broadcast_to(sky, (side, side, 3)).astype(np.uint8))
    pen = ImageDraw.Draw(picture)

    def polygon(points: list[tuple[float, float]], colour: tuple[int, int, int]) -> None:
        pen.polygon([(x * side, y * side) for x, y in points], colour)

    pen.ellipse([0.68 * side, 0.08 * side, 0.84 * side, 0.24 * side], (250, 215, 90))
    polygon([(0, 0.66), (1, 0.62), (1, 1), (0, 1)], (38, 92, 150))
    polygon([(0, 0.82), (1, 0.86), (1, 1), (0, 1)], (28, 72, 125))
    polygon([(0.2, 0.62), (0.8, 0.62), (0.7, 0.76), (0.3, 0.76)], (130, 78, 40))
    polygon([(0.44, 0.14), (0.47, 0.14), (0.47, 0.62), (0.44, 0.62)], (80, 50, 30))
    polygon([(0.49, 0.17), (0.49, 0.57), (0.78, 0.57)], (205, 50, 45))
    polygon([(0.42, 0.26), (0.42, 0.57), (0.24, 0.57)], (240, 235, 225))
    return np.asarray(picture.resize((SOURCE, SOURCE), Image.Resampling.BOX))


def cells() -> np.ndarray:
    """Draw a stained slide, (168, 168, 3) uint8, which has no top or bottom."""
    random = np.random.default_rng(4)
    side = 4 * SOURCE
    picture = Image.new("RGB", (side, side), (243, 225, 235))
    pen = ImageDraw.Draw(picture)
    for x, y in random.uniform(-0.05, 1.05, (26, 2)) * side:
        wide, tall = random.uniform(0.05, 0.11, 2) * side
        pen.ellipse([x - wide, y - tall, x + wide, y + tall], (222, 165, 200), (190, 120, 170), 6)
        core = 0.35 * min(wide, tall)
        pen.ellipse([x - core, y - core, x + core, y + core], (110, 55, 135))
    return np.asarray(picture.resize((SOURCE, SOURCE), Image.Resampling.BOX))


def main(folder: Path = FOLDER) -> None:
    """Write the picture of every part into a folder."""
    folder.mkdir(parents=True, exist_ok=True)
    for name in VIEW_PARTS:
        render(name).quantize(128).save(folder / f"{name}.png", optimize=True)


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:2]))
