"""Anybody's own pictures: a folder of image files becomes an image set."""

from __future__ import annotations

import os
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
from PIL import Image, ImageOps

from psco.data.imageset import ImageSet
from psco.errors import InputError

EXTENSIONS = (".png", ".jpg", ".jpeg", ".webp", ".tif", ".tiff", ".bmp", ".gif", ".ppm", ".pgm")


def load_folder(folder: Path, size: int, channels: int) -> ImageSet:
    """Read all images below a folder.

    The sub-folder directly below ``folder`` is the class of an image; images in a flat folder have
    no labels.

    Parameters
    ----------
    folder
        Searched to any depth, in the order of the sorted paths; hidden files are passed over.
    size
        Side of the result: the short side is resized to it and the centre cut out.
    channels
        1 for grey, 3 for RGB.

    Raises
    ------
    InputError
        If there is no image, or one cannot be decoded.
    """
    paths = image_paths(folder)
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        images = list(pool.map(lambda path: read_image(path, size, channels), paths))
    tops = [path.relative_to(folder).parts[0] for path in paths]
    flat = all(len(path.relative_to(folder).parts) == 1 for path in paths)
    classes: Sequence[str] = () if flat else sorted(set(tops))
    number = {name: index for index, name in enumerate(classes)}
    labels = None if flat else np.array([number[top] for top in tops], dtype=np.int64)
    return ImageSet(np.stack(images), labels, tuple(classes), name=folder.name)


def image_paths(folder: Path) -> list[Path]:
    """List the image files below a folder, sorted; none is an error."""
    paths = sorted(
        path
        for path in folder.rglob("*")
        if path.suffix.lower() in EXTENSIONS and not path.name.startswith(".") and path.is_file()
    )
    if not paths:
        raise InputError(
            f"no images in {str(folder)!r}; looked for {' '.join(EXTENSIONS)} at any depth"
        )
    return paths


def read_image(path: Path, size: int, channels: int) -> np.ndarray:
    """Decode one image to (size, size, channels) uint8, upright, antialiased.

    Raises
    ------
    InputError
        If the file cannot be decoded.
    """
    try:
        with Image.open(path) as file:
            image = ImageOps.exif_transpose(file).convert("L" if channels == 1 else "RGB")
    except (OSError, ValueError, SyntaxError, Image.DecompressionBombError) as error:
        raise InputError(
            f"cannot decode the image {str(path)!r} ({error}); repair or remove it"
        ) from None
    square = ImageOps.fit(image, (size, size), Image.Resampling.BICUBIC)
    return np.asarray(square, dtype=np.uint8).reshape(size, size, channels)
