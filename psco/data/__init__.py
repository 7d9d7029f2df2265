"""Data sets by name or by path, all of the one type `ImageSet`."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from psco.data.folder import load_folder
from psco.data.glyphs import load_glyphs
from psco.data.imageset import ImageSet
from psco.errors import InputError, unknown_name

NAMED = {"glyphs": load_glyphs}


def load_dataset(
    source: str | Path | np.ndarray | ImageSet,
    split: str = "train",
    *,
    size: int = 84,
    channels: int = 3,
) -> ImageSet:
    """Load images from wherever they are.

    Parameters
    ----------
    source
        The name of an embedded data set (``"glyphs"``), a folder of images (sub-folders are
        classes), an array (n, H, W) or (n, H, W, C) of uint8, or an `ImageSet`.
    split
        ``train``, ``val`` or ``test`` of a named data set; a folder and an array have no splits.
    size
        Side in pixels to which the pictures of a folder are brought; the others keep theirs.
    channels
        1 for grey or 3 for RGB; images of the other kind are converted.

    Raises
    ------
    InputError
        If there is nothing by this name, or it holds no usable images.
    """
    if isinstance(source, ImageSet):
        return with_channels(source, channels)
    if isinstance(source, np.ndarray):
        array = source[..., None] if source.ndim == 3 else source
        return with_channels(ImageSet(array, name="array"), channels)
    if str(source) in NAMED:
        return with_channels(NAMED[str(source)](split), channels)
    folder = Path(source)
    if folder.is_dir():
        return load_folder(folder, size, channels)
    if folder.exists():
        raise InputError(f"{str(source)!r} is a file; give a folder of images")
    if isinstance(source, Path) or "/" in source:
        raise InputError(f"there is no folder {str(source)!r}")
    raise unknown_name("data set or folder", source, NAMED)


def with_channels(images: ImageSet, channels: int) -> ImageSet:
    """Convert between grey and RGB where needed (luma of ITU-R 601, as Pillow does)."""
    if images.channels == channels:
        return images
    if channels == 3:
        converted = np.repeat(images.images, 3, axis=3)
    else:
        luma = images.images @ np.array([0.299, 0.587, 0.114], dtype=np.float32)
        converted = np.rint(luma).astype(np.uint8)[..., None]
    return ImageSet(converted, images.labels, images.classes, images.name, images.split)


__all__ = ["ImageSet", "load_dataset", "with_channels"]
