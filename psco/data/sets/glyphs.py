"""The built-in data set: characters of synthetic alphabets, drawn on first use.

An alphabet is a small vocabulary of pen strokes. A character is a *program*: one to four of these
strokes, joined to one another. A drawing is a noisy rendering of the program. The drawings resemble
those of Omniglot, and nearest neighbours of raw pixels classify them about as poorly.
"""

from __future__ import annotations

import io
import os
import zlib
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
from numpy.random import Generator, Philox

from psco.data.imageset import ImageSet
from psco.errors import InputError, unknown_name
from psco.files.atomic import atomic_path
from psco.files.cache import cache_dir

FORMAT = 1  # part of every cache file name; increase it with any change to the drawings
SIDE = 28  # pixels
CHARACTERS, DRAWINGS = 25, 20  # classes per alphabet, images per class
ALPHABETS = {"train": range(40), "val": range(40, 44), "test": range(44, 56)}

# Programs. Lengths are in units of the longer side of a character; angles in degrees, clockwise
# from the x axis, as y points down. A value listed twice is twice as likely.
VOCABULARY = 7  # strokes shared by the characters of an alphabet
SEGMENTS, STROKES = (1, 1, 2, 2, 3), (1, 2, 2, 2, 3, 3, 4)  # per stroke, per character
BENDS = (0.0, 60.0, 130.0, 190.0, 360.0)  # of a segment: line, bow, arc, hook, loop
JOINTS = (0.0, 75.0, 110.0, 145.0)  # angle between two segments; 0 is smooth
CONCENTRATIONS = (1.6, 0.6, 0.8, 0.8, 0.7), (0.7, 0.7, 0.9, 0.6)  # Dirichlet, of the last two
HEADINGS = (
    0.0,
    0.0,
    45.0,
    90.0,
    90.0,
    90.0,
    135.0,
)  # of a first segment: right, down or in between
MIRRORS = ((1, 1), (1, 1), (-1, 1), (1, -1))  # of a stroke in a character
MEETINGS = (
    0.0,
    0.0,
    0.35,
    0.5,
    0.65,
    1.0,
    1.0,
)  # position along a stroke where another one meets it
GAPS = ((0.0, 0.0),) * 7 + ((-0.3, 0.1), (0.3, -0.1))  # offsets between strokes that meet
SHORTEST, SLIMMEST = 0.3, 0.5  # least length of a stroke, and shorter side of a character
INK = (1.6, 3.8)  # least and greatest total length of the strokes of a character

# Criteria for programs, in pixels.
UNIT = 20.0  # longer side of a character
BRUSH, CLEAR = 4.5, 0.96  # a brush of this width covers this fraction of width times length
APART, DISTINCT = 2.3, 0.1  # distance from other characters, and fraction of ink beyond it

# Variation of drawings: standard deviations, unless stated otherwise.
JITTER, STROKE_SHIFT = 0.03, 0.03  # units; per control point and per stroke
STROKE_SCALE, SCALE, ASPECT = 0.09, 0.13, 0.10  # of logarithms; aspect is width to height
SHEAR, ROTATION, SHIFT = 0.12, np.deg2rad(7), 1.6  # the shift in pixels
PENS = (1.5, 2.2)  # pixels, thinnest and thickest
ROOM = SIDE - 2 * 1.7  # pixels that a path may span without being clipped
SPACING = 0.4  # pixels between the samples of a path, dense enough to show no gaps

Strokes = list[np.ndarray]  # control points of each stroke, (K, 2) as (x, y)


def load_glyphs(split: str = "train", *, seed: int = 0) -> ImageSet:
    """Load a split of the glyphs; the first call draws it, later calls read the cache.

    Parameters
    ----------
    split
        ``"train"`` (1000 classes), ``"val"`` (100) or ``"test"`` (300); no two splits share an
        alphabet. Every class has 20 images.
    seed
        From 0 to 2**64 - 1; each seed has its own alphabets.

    Returns
    -------
    ImageSet
        Images (n, 28, 28, 1) from 0 (ink) to 255 (paper), possibly memory-mapped, class by class;
        classes have names such as ``"alphabet03/character07"``.

    Raises
    ------
    InputError
        If there is no such split, or the seed is out of range.
    """
    if split not in ALPHABETS:
        raise unknown_name("split of glyphs", split, ALPHABETS)
    file = cache_dir() / f"glyphs-v{FORMAT}-seed{seed}-{split}.npy"
    images = _read(file)
    if images is None:
        images = draw_glyphs(ALPHABETS[split], seed).reshape(-1, SIDE, SIDE, 1)
        _write(file, images)
    names = [(a, c) for a in ALPHABETS[split] for c in range(CHARACTERS)]
    classes = tuple(f"alphabet{a:02d}/character{c:02d}" for a, c in names)
    labels = np.repeat(np.arange(len(classes), dtype=np.int64), DRAWINGS)
    return ImageSet(images, labels, classes, name="glyphs", split=split)


def draw_glyphs(
    alphabets: Sequence[int], seed: int, *, characters: int = CHARACTERS, drawings: int = DRAWINGS
) -> np.ndarray:
    """Draw the first characters of alphabets, numbered from 0: (A x C, D, 28, 28) uint8.

    Ink is 0, paper 255. A class depends only on the seed, its alphabet, its position in the
    alphabet and the number of drawings.

    Raises
    ------
    InputError
        If the seed is not from 0 to 2**64 - 1.
    """
    if not 0 <= seed < 2**64:
        raise InputError(f"seed must be from 0 to 2**64 - 1 for glyphs, not {seed}")

    def draw(alphabet: int) -> np.ndarray:
        programs = _invent_alphabet(seed, alphabet, characters)
        return np.stack([_draw_character(program, rng, drawings) for program, rng in programs])

    with ThreadPoolExecutor(os.cpu_count()) as pool:
        return np.concatenate(list(pool.map(draw, alphabets)))


def _generator(seed: int, alphabet: int, place: int) -> Generator:
    # The place is the highest word of the counter, so that streams do not overlap.
    key, counter = (np.array(words, np.uint64) for words in ([seed, alphabet], [0, 0, 0, place]))
    return Generator(Philox(key=key, counter=counter))


def _invent_alphabet(seed: int, alphabet: int, count: int) -> Iterator[tuple[Strokes, Generator]]:
    """Yield the program of each character, with the generator for its drawings."""
    rng = _generator(seed, alphabet, 0)
    bends, joints = (rng.dirichlet(alpha) for alpha in CONCENTRATIONS)
    vocabulary: Strokes = []
    while len(vocabulary) < VOCABULARY:
        stroke = _invent_stroke(rng, bends, joints)
        if _sketch(_fit([stroke])) is not None:
            vocabulary.append(stroke)
    known = np.empty((0, SIDE, SIDE), np.float32)
    for place in range(1, count + 1):
        rng = _generator(seed, alphabet, place)
        program, sketch = _invent(rng, vocabulary, known)
        known = np.concatenate([known, sketch[None]])
        yield program, rng


def _invent_stroke(rng: Generator, bends: np.ndarray, joints: np.ndarray) -> np.ndarray:
    """Return the control points (K, 2) of a random stroke from the origin, doubled at corners."""
    heading = np.deg2rad(rng.choice(HEADINGS) + rng.normal(0, 6))
    side, points = rng.choice((-1, 1)), [np.zeros(2)]
    for segment in range(rng.choice(SEGMENTS)):
        if segment > 0:
            side *= rng.choice((-1, -1, 1))
            if (joint := rng.choice(JOINTS, p=joints)) > 0:
                points.append(points[-1])
                heading += side * np.deg2rad(joint + rng.normal(0, 10))
        bend = np.deg2rad(rng.choice(BENDS, p=bends) * rng.uniform(0.9, 1.1))
        length = rng.uniform(0.5, 1.0) * (1 + bend / 6) * 0.85**segment
        steps = max(2, round(bend / np.deg2rad(45)))
        headings = heading + side * bend * (np.arange(steps) + 0.5) / steps
        moves = np.stack([np.cos(headings), np.sin(headings)], axis=1) * length / steps
        points.extend(points[-1] + np.cumsum(moves, axis=0))
        heading += side * bend
    return np.stack(points)


def _invent(rng: Generator, vocabulary: Strokes, known: np.ndarray) -> tuple[Strokes, np.ndarray]:
    """Draw programs until one is legible and differs from the known sketches (n, S, S)."""
    apart = APART
    while True:
        program = _fit(_compose(rng, vocabulary))
        sketch = _sketch(program) if _is_sizeable(program) else None
        if sketch is not None:
            if _differs(sketch, known, apart):
                return program, sketch
            apart *= 0.99  # so that the search ends for any number of characters


def _compose(rng: Generator, vocabulary: Strokes) -> Strokes:
    strokes = [vocabulary[rng.integers(VOCABULARY)]]
    for _ in range(rng.choice(STROKES) - 1):
        host = strokes[rng.integers(len(strokes))]
        stroke = vocabulary[rng.integers(VOCABULARY)] * rng.choice(MIRRORS) * rng.uniform(0.5, 1)
        there, here = (s[round(rng.choice(MEETINGS) * (len(s) - 1))] for s in (host, stroke))
        strokes.append(stroke - here + there + rng.choice(GAPS))
    return strokes


def _fit(strokes: Strokes) -> Strokes:
    """Centre the strokes at the origin and scale their longer side to one unit."""
    points = np.concatenate(strokes)
    low, high = points.min(axis=0), points.max(axis=0)
    return [(stroke - (low + high) / 2) / (high - low).max() for stroke in strokes]


def _is_sizeable(program: Strokes) -> bool:
    lengths = [_steps(stroke).sum() for stroke in program]
    side = np.ptp(np.concatenate(program), axis=0).min()
    return bool(side > SLIMMEST and min(lengths) > SHORTEST and INK[0] < sum(lengths) < INK[1])


def _sketch(program: Strokes) -> np.ndarray | None:
    """Return the distances (S, S) of the pixels from the ideal path; None if it is illegible."""
    paths = [_trace(stroke, stroke, spacing=1.0) * UNIT + SIDE / 2 for stroke in program]
    distances = _distances(np.concatenate(paths)[None])[0]
    length = sum(_steps(path).sum() for path in paths)
    return distances if (distances < BRUSH / 2).sum() > CLEAR * length * BRUSH else None


def _differs(sketch: np.ndarray, known: np.ndarray, apart: float) -> bool:
    own, other = sketch < 1, known < 1  # (S, S), (n, S, S)
    own_apart = (own & (known > apart)).sum(axis=(1, 2)) > DISTINCT * own.sum()
    other_apart = (other & (sketch > apart)).sum(axis=(1, 2)) > DISTINCT * other.sum(axis=(1, 2))
    return bool(np.all(own_apart | other_apart))


def _draw_character(program: Strokes, rng: Generator, drawings: int) -> np.ndarray:
    """Draw a program several times: (D, S, S) uint8."""
    paths = []
    for stroke in program:
        middle = stroke.mean(axis=0)
        points = stroke - middle + rng.normal(0, JITTER, (drawings, *stroke.shape))  # (D, K, 2)
        points *= np.exp(rng.normal(0, STROKE_SCALE, (drawings, 1, 1)))
        points += middle + rng.normal(0, STROKE_SHIFT, (drawings, 1, 2))
        paths.append(_trace(points, stroke, SPACING))
    placed = _place(np.concatenate(paths, axis=1), rng)  # (D, P, 2)
    pens = rng.uniform(*PENS, (drawings, 1, 1))
    ink = np.clip(pens / 2 - _distances(placed) + 0.5, 0, 1)  # (D, S, S)
    return np.array(255.5 - 255 * ink, dtype=np.uint8)


def _place(paths: np.ndarray, rng: Generator) -> np.ndarray:
    """Shear, scale and rotate glyphs (D, P, 2) given in units, and place them in the image."""
    slant, size, aspect, angle = rng.normal(0, 1, (4, len(paths), 1))
    x = (paths[..., 0] + SHEAR * slant * paths[..., 1]) * np.exp(SCALE * size + ASPECT * aspect)
    y = paths[..., 1] * np.exp(SCALE * size - ASPECT * aspect)
    cos, sin = np.cos(ROTATION * angle), np.sin(ROTATION * angle)
    turned = UNIT * np.stack([cos * x - sin * y, sin * x + cos * y], axis=2)
    low, high = turned.min(axis=1, keepdims=True), turned.max(axis=1, keepdims=True)
    shrink = np.minimum(1, ROOM / (high - low).max(axis=2, keepdims=True))  # (D, 1, 1)
    slack = (ROOM - shrink * (high - low)) / 2
    shift = np.clip(rng.normal(0, SHIFT, low.shape), -slack, slack)
    placed: np.ndarray = shrink * (turned - (low + high) / 2) + shift + SIDE / 2
    return placed


def _trace(points: np.ndarray, stroke: np.ndarray, spacing: float) -> np.ndarray:
    """Sample the splines of control points (..., K, 2), as densely as that of ``stroke``."""
    # A span of a cubic B-spline is at most as long as this mean of three sides of its polygon.
    bounds = np.convolve(_steps(stroke), (1, 4, 1))[1:-1] / 6  # (K - 1,)
    counts = np.ceil(bounds * UNIT / spacing).astype(int)
    spans = np.repeat(np.arange(len(counts)), counts)  # (P,)
    t = (np.arange(len(spans)) - (np.cumsum(counts) - counts)[spans]) / counts[spans]
    basis = (1 - t) ** 3, 4 - 6 * t**2 + 3 * t**3, 1 + 3 * (t + t**2 - t**3), t**3
    ends = np.concatenate([points[..., :1, :], points, points[..., -1:, :]], axis=-2)
    terms = [b[:, None] / 6 * ends[..., spans + k, :] for k, b in enumerate(basis)]
    path: np.ndarray = np.sum(terms, axis=0)
    return path


def _steps(path: np.ndarray) -> np.ndarray:
    lengths: np.ndarray = np.sqrt((np.diff(path, axis=0) ** 2).sum(axis=1))
    return lengths


def _distances(paths: np.ndarray) -> np.ndarray:
    """Return the distance of every pixel from the nearest sample: (n, P, 2) to (n, S, S)."""
    centres = np.arange(0.5, SIDE, dtype=np.float32)[:, None]
    x2, y2 = ((centres - paths[:, None, :, k].astype(np.float32)) ** 2 for k in (0, 1))  # (n, S, P)
    # Row by row, since all rows at once do not fit into the processor's cache.
    rows = [np.sqrt((x2 + y2[:, row, None]).min(axis=2)) for row in range(SIDE)]
    return np.stack(rows, axis=1)


def _write(file: Path, images: np.ndarray) -> None:
    content = io.BytesIO()
    np.save(content, images)
    with atomic_path(file) as temporary:
        temporary.write_bytes(
            content.getvalue() + zlib.crc32(content.getvalue()).to_bytes(4, "big")
        )


def _read(file: Path) -> np.ndarray | None:
    """Read a cache file (n, S, S, 1); None if it is missing or damaged."""
    content = file.read_bytes() if file.exists() else b""
    is_intact = content[-4:] == zlib.crc32(content[:-4]).to_bytes(4, "big")
    return np.load(file, mmap_mode="c") if is_intact else None  # processes share the pages
