"""Omniglot: 1623 handwritten characters of 50 alphabets, each drawn by 20 people.

The drawings are kept with one bit per pixel, 48 MB in all, and unpacked and rotated at each access.
"""

from __future__ import annotations

import hashlib
import io
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import numpy as np
from PIL import Image

from psco.data.imageset import ImageSet
from psco.data.reading.source import open_source
from psco.data.sets.catalogue import data_folder, missing_files
from psco.data.sets.splits import resolve_split
from psco.errors import InputError, PscoError, quoted, unknown_name
from psco.files.atomic import atomic_path
from psco.files.cache import cache_dir

FORMAT = 1  # part of every cache file name; increase it with any change to the content
SIDE = 105  # pixels of a drawing
_MAX_SIDE = 256  # for networks trained on larger images than these
CHARACTERS = 1623
SPLITS = ("train", "val", "test")
PARTS = ("images_background", "images_evaluation")
VAL_ALPHABETS = ("Armenian", "Bengali", "Early_Aramaic", "Hebrew", "Mkhedruli_(Georgian)")
SEEN = 1200  # characters of train; in the scheme vinyals, of train and val
PAPER_VAL = 100  # characters of val in the scheme paper
_UNUSABLE = (OSError, ValueError, EOFError)  # raised for an absent or damaged cache file


class RotatedImages:
    """Drawings indexed like an array (n, S, S, C) uint8, rotated at each access.

    The first axis takes any index of an array: an integer, a slice, an integer array of any shape,
    a mask. ``np.asarray`` returns all images.

    Parameters
    ----------
    base
        (m, S, S) uint8, or (m, S, ceil(S / 8)) uint8 with eight pixels, 0 or 255, in each byte.
    drawings, turns
        (n,) int64, the drawing of each image and its number of quarter turns, 0 to 3.
    channels
        Number of channels C, all equal.
    """

    dtype = np.dtype(np.uint8)
    ndim = 4

    def __init__(
        self, base: np.ndarray, drawings: np.ndarray, turns: np.ndarray, channels: int = 1
    ) -> None:
        self.shape = (len(drawings), base.shape[1], base.shape[1], channels)
        self._base, self._drawings, self._turns = base, drawings, turns

    def __len__(self) -> int:
        return len(self._drawings)

    def __getitem__(self, index: Any) -> np.ndarray:
        """Return rotated images."""
        drawings, turns = self._drawings[index], np.asarray(self._turns[index])
        upright = _unpack(self._base[drawings.reshape(-1)])  # (k, S, S)
        images = np.empty(upright.shape, dtype=np.uint8)
        for turn in range(4):
            chosen = np.flatnonzero(turns == turn)
            images[chosen] = np.rot90(upright[chosen], turn, axes=(1, 2))
        shaped = images.reshape(*turns.shape, *self.shape[1:3], 1)
        return shaped if self.shape[3] == 1 else np.repeat(shaped, self.shape[3], axis=-1)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        if copy is False:
            raise ValueError("images rotated at each access cannot be returned without a copy")
        return self[:].astype(dtype or self.dtype, copy=False)


def load_omniglot(
    split: str = "train",
    root: str | Path | None = None,
    *,
    rotations: bool = True,
    scheme: str = "vinyals",
    seed: int = 0,
    size: int = SIDE,
    channels: int = 1,
) -> ImageSet:
    """Load a split of Omniglot; the first call prepares it, later calls read the cache.

    Parameters
    ----------
    split
        ``train``, ``val`` or ``test``.
    root
        The folder with ``images_background`` and ``images_evaluation``, as folders or as ``.zip``,
        or its parent; by default ``PSCO_DATA``.
    rotations
        Whether characters rotated by 90, 180 and 270 degrees counterclockwise are further classes,
        such as ``Armenian/character01/rot090``.
    scheme
        ``vinyals``: in the order of parts, alphabets and characters, the last 423 are test; of the
        first 1200, five whole alphabets (172 characters) are val and 1028 train, as in the code of
        the paper. ``paper``: 1200, 100 and 323 random characters, as in its text.
    seed
        For the scheme ``paper``, from 0 to 2**64 - 1.
    size
        Side in pixels, from 8 to 256; the original has 105. Resized bilinearly, with antialiasing.
    channels
        1, or 3 equal ones.

    Returns
    -------
    ImageSet
        Images (n, size, size, channels) from 0 (ink) to 255 (paper), class by class.

    Raises
    ------
    InputError
        If the files are missing, damaged or incomplete, or a parameter is out of range.
    """
    resolved = resolve_split("omniglot", split, SPLITS)
    if not 8 <= size <= _MAX_SIDE:
        raise InputError(f"size must be from 8 to {_MAX_SIDE} for omniglot, not {size}")
    characters, counts, base = _prepared(data_folder("omniglot", root), size)
    chosen = split_characters(characters, scheme, seed)[resolved]
    turns = range(4) if rotations else range(1)
    ends = np.cumsum(counts)
    shown = [np.arange(ends[c] - counts[c], ends[c]) for c in chosen for _ in turns]
    labels = np.repeat(np.arange(len(shown)), [len(drawings) for drawings in shown])
    lazy = RotatedImages(base, np.concatenate(shown), labels % len(turns), channels)
    names = ["/".join(characters[c].split("/")[1:]) for c in chosen]
    classes = [f"{name}/rot{90 * t:03}" if rotations else name for name in names for t in turns]
    return ImageSet(lazy, labels, tuple(classes), name="omniglot", split=resolved)


def split_characters(characters: list[str], scheme: str, seed: int) -> dict[str, list[int]]:
    """Return the indices of the characters of each split.

    The characters are ``part/alphabet/character``, sorted. InputError if there are not 1623 of
    them, or the scheme or seed is not valid.
    """
    if len(characters) != CHARACTERS:
        raise InputError(
            f"Omniglot has {CHARACTERS} characters, this copy has {len(characters)}; get another "
            f"copy of {' and '.join(PARTS)}"
        )
    if scheme == "vinyals":
        val = [c for c in range(SEEN) if characters[c].split("/")[1] in VAL_ALPHABETS]
        train = sorted(set(range(SEEN)) - set(val))
        return {"train": train, "val": val, "test": list(range(SEEN, CHARACTERS))}
    if scheme == "paper":
        if not 0 <= seed < 2**64:
            raise InputError(f"seed must be from 0 to 2**64 - 1, not {seed}")
        # Raw numbers, since the methods of numpy's generators may change between versions.
        order = np.argsort(np.random.Philox(key=seed).random_raw(CHARACTERS), kind="stable")
        parts = np.split(order, [SEEN, SEEN + PAPER_VAL])
        return {name: sorted(part.tolist()) for name, part in zip(SPLITS, parts, strict=True)}
    raise unknown_name("scheme of omniglot", scheme, ["vinyals", "paper"])


def _prepared(place: Path, size: int) -> tuple[list[str], np.ndarray, np.ndarray]:
    """Return the characters, the number of drawings of each, and the base of `RotatedImages`."""
    parts = [place / p if (place / p).is_dir() else place / f"{p}.zip" for p in PARTS]
    for path in parts:
        if not path.exists():
            raise missing_files("omniglot", place, path.stem)
    key = hashlib.sha256("|".join(_stamp(part) for part in parts).encode()).hexdigest()[:16]
    ends = ".json", f"-{SIDE}.npy", f"-{size}.npy"
    index, original, resized = (cache_dir() / f"omniglot-v{FORMAT}-{key}{end}" for end in ends)
    try:
        known = json.loads(index.read_bytes())
        bits = np.load(original, mmap_mode="r")
    except _UNUSABLE:
        known, bits = _read_drawings(parts)
        _save(original, lambda path: np.save(path, bits))
        _save(index, lambda path: path.write_text(json.dumps(known)))
    base = bits if size == SIDE else _resized(bits, resized, size)
    return list(known), np.array(list(known.values()), dtype=np.int64), base


def _stamp(path: Path) -> str:
    # The time of a folder changes with its entries; looking up 32,460 files takes long.
    folders = [path, *(Path(top) for top, _, _ in os.walk(path))]
    times = sorted((str(folder), folder.stat().st_mtime_ns) for folder in folders)
    return f"{path.resolve()}|{path.stat().st_size}|{times}"


def _read_drawings(parts: list[Path]) -> tuple[dict[str, int], np.ndarray]:
    """Return the number of drawings of each ``part/alphabet/character``, and all (m, 105, 14)."""
    drawn: dict[str, list[bytes]] = {}
    for path, part in zip(parts, PARTS, strict=True):
        source = open_source(path)
        for name in source.names():
            folders = name.split("/")[-3:-1]
            if name.endswith(".png") and len(folders) == 2:
                bits = _read_bits(source.read(name), f"{path}/{name}")
                drawn.setdefault("/".join([part, *folders]), []).append(bits)
    ordered = {name: drawn[name] for name in sorted(drawn, key=lambda name: name.split("/"))}
    split_characters(
        list(ordered), "vinyals", 0
    )  # raises for an incomplete copy before it is cached
    content = b"".join(bits for drawings in ordered.values() for bits in drawings)
    array = np.frombuffer(content, dtype=np.uint8).reshape(-1, SIDE, (SIDE + 7) // 8)
    return {name: len(drawings) for name, drawings in ordered.items()}, array


def _read_bits(content: bytes, where: str) -> bytes:
    try:
        with Image.open(io.BytesIO(content), formats=["PNG"]) as image:
            if image.size == (SIDE, SIDE):
                return bytes(image.convert("1", dither=Image.Dither.NONE).tobytes())
            problem = f"its size is {image.size}, not ({SIDE}, {SIDE})"
    except Exception as error:  # a damaged file can make Pillow raise almost anything
        problem = str(error)
    raise InputError(f"cannot use the drawing {quoted(where)}: {problem}; get another copy")


def _resized(bits: np.ndarray, file: Path, size: int) -> np.ndarray:
    """Return the drawings (m, size, size) uint8, from the cache if possible."""
    try:
        return cast(np.ndarray, np.load(file, mmap_mode="r"))
    except _UNUSABLE:
        small = np.empty((len(bits), size, size), dtype=np.uint8)
        for number, packed in enumerate(bits):
            image = Image.fromarray(_unpack(packed[None])[0])
            small[number] = np.asarray(image.resize((size, size), Image.Resampling.BILINEAR))
        _save(file, lambda path: np.save(path, small))
        return small


def _unpack(base: np.ndarray) -> np.ndarray:
    if base.shape[2] == base.shape[1]:
        return base
    pixels = np.unpackbits(base, axis=2, count=base.shape[1])
    pixels *= 255
    return pixels


def _save(file: Path, write: Callable[[Path], object]) -> None:
    try:
        with atomic_path(file) as temporary:
            write(temporary)
    except OSError as error:
        raise PscoError(
            f"cannot write {quoted(file)}: {error.strerror or error}; free some space, or set "
            f"PSCO_CACHE to a folder on another disk"
        ) from None
