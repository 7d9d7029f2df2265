"""Strokes from pictures of drawings: thin the lines, then follow them as a pen would."""

from __future__ import annotations

import numpy as np

_AROUND = [(-1, 0), (-1, 1), (0, 1), (1, 1), (1, 0), (1, -1), (0, -1), (-1, -1)]


def trace(picture: np.ndarray) -> list[list[tuple[float, float]]]:
    """Return the strokes of dark lines on light paper, (H, W): points (x, y) from 0 to 1."""
    ink = thinned(picture < 128)
    left = {tuple(point) for point in np.argwhere(ink).tolist()}
    strokes = []
    while left:
        # A line begins where it has one neighbour; a circle has no such point.
        point = min(left, key=lambda p: (len(_neighbours(p, left)), p))
        stroke = [point]
        left.remove(point)
        while near := _neighbours(point, left):
            # Straight on where lines cross.
            before = stroke[-4] if len(stroke) > 3 else stroke[0]
            way = np.subtract(point, before)
            point = max(near, key=lambda p: float(np.dot(np.subtract(p, stroke[-1]), way)))
            stroke.append(point)
            left.remove(point)
        strokes.append(stroke)
    height, width = picture.shape
    return [[((x + 0.5) / width, (y + 0.5) / height) for y, x in stroke] for stroke in strokes]


def thinned(ink: np.ndarray) -> np.ndarray:
    """Return lines of a single pixel's width (Zhang and Suen's algorithm)."""
    ink = np.pad(ink, 1).astype(np.uint8)
    while True:
        before = ink.copy()
        for parts in (((0, 2, 4), (2, 4, 6)), ((0, 2, 6), (0, 4, 6))):
            around = np.stack([np.roll(ink, (-dy, -dx), (0, 1)) for dy, dx in _AROUND])
            count = around.sum(0)
            starts = ((around == 0) & (np.roll(around, -1, 0) == 1)).sum(0)
            free = [around[list(part)].prod(0) == 0 for part in parts]
            ink = ink & ~((count >= 2) & (count <= 6) & (starts == 1) & free[0] & free[1])
        if np.array_equal(ink, before):
            return ink[1:-1, 1:-1].astype(bool)


def _neighbours(point, points):
    y, x = point
    return [(y + dy, x + dx) for dy, dx in _AROUND if (y + dy, x + dx) in points]
