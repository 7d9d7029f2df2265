"""Data sets by name or by path, all of the one type `ImageSet`."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np

from psco.data.imageset import ImageSet
from psco.data.reading.folders import list_images, list_paths
from psco.data.reading.objects import (
    from_array,
    from_hf_dataset,
    from_torch_dataset,
    is_hf_dataset,
    is_torch_dataset,
)
from psco.data.reading.pack import pack as pack_files  # `psco.data.reading.pack` stays the module
from psco.data.reading.shardpaths import are_shards
from psco.data.reading.shards import load_shards
from psco.data.reading.undecodable import MAX_BAD
from psco.data.sets.benchmarks import load_benchmark
from psco.data.sets.catalogue import BENCHMARKS
from psco.data.sets.glyphs import load_glyphs
from psco.errors import InputError, unknown_name


def has_splits(source: object) -> bool:
    """Say whether `load_dataset` knows splits of it: named data sets have them."""
    return isinstance(source, str) and (source == "glyphs" or source in BENCHMARKS)


def load_dataset(
    source: object,
    split: str = "train",
    root: str | Path | None = None,
    *,
    size: int | None = None,
    channels: int | None = None,
    max_bad: float = MAX_BAD,
    progress: bool = True,
) -> ImageSet:
    """Load images from wherever they are.

    Parameters
    ----------
    source
        The name of a data set (``"glyphs"``), a folder or zip archive of images (sub-folders are
        classes), tar shards (a pattern such as ``"data-{000000..000123}.tar"``, a glob, a folder
        of .tar files), a CSV file that names them, a list of paths, an array (n, H, W) or
        (n, H, W, C) of uint8, a data set of torch or of Hugging Face, or an `ImageSet`.
    split
        ``train``, ``val`` or ``test`` of a named data set; others have no splits.
    root
        Folder that holds a named data set, or the one above it; by default ``PSCO_DATA``.
    size
        Side in pixels to which pictures are brought, by default the data set's own, or 84; arrays
        and image sets keep theirs.
    channels
        1 for grey or 3 for RGB, to which others are converted; by default the data set's own, or 3
        for pictures.
    max_bad
        Share of image files, in [0, 1], that may be undecodable; these are skipped.
    progress
        Show progress bars on stderr.

    Raises
    ------
    InputError
        If there is nothing by this name, or it holds no usable images.
    """
    if isinstance(source, ImageSet):
        return with_channels(source, channels)
    if isinstance(source, np.ndarray):
        return with_channels(from_array(source), channels)
    if source == "glyphs":
        return with_channels(load_glyphs(split), channels)
    if isinstance(source, str) and source in BENCHMARKS:
        return load_benchmark(source, split, root, size, channels)
    size, channels = size or 84, channels or 3
    if isinstance(source, (str, os.PathLike)):
        if are_shards(source):
            return load_shards(source, size, channels, max_bad=max_bad, progress=progress)
        path = Path(source)
        looks_like_a_name = path.name == source and not path.suffix
        if looks_like_a_name and not path.exists():
            raise unknown_name("data set or folder", path.name, dataset_names())
        return pack_files(list_images(path), size, channels, max_bad=max_bad, progress=progress)
    if isinstance(source, (list, tuple)) and all(isinstance(p, (str, os.PathLike)) for p in source):
        return pack_files(list_paths(source), size, channels, max_bad=max_bad, progress=progress)
    if is_hf_dataset(source):
        return from_hf_dataset(source, size, channels, progress=progress)
    if is_torch_dataset(source):
        return from_torch_dataset(source, size, channels, progress=progress)
    raise InputError(
        f"cannot take images from an object of type {type(source).__name__}; give the name of a "
        f"data set, a folder, a .zip or .csv file, a list of paths, an array or a data set of torch"
    )


def dataset_names() -> list[str]:
    """List the data sets that have a name."""
    return ["glyphs", *BENCHMARKS]


def with_channels(images: ImageSet, channels: int | None) -> ImageSet:
    """Convert between grey and RGB where needed (luma of ITU-R 601, as Pillow does)."""
    if channels is None or images.channels == channels:
        return images
    if channels == 3:
        converted = np.repeat(images.images[:], 3, axis=3)
    else:
        luma = images.images[:] @ np.array([0.299, 0.587, 0.114], dtype=np.float32)
        converted = np.rint(luma).astype(np.uint8)[..., None]
    return ImageSet(converted, images.labels, images.classes, images.name, images.split)


__all__ = ["ImageSet", "dataset_names", "has_splits", "load_dataset", "with_channels"]
