"""Loading of images from anywhere: data sets by name, files by path, objects in memory."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from psco.data.imageset import ImageSet, with_channels
from psco.data.reading.decode import with_aspect
from psco.data.reading.folders import list_images, list_paths
from psco.data.reading.objects import (
    from_array,
    from_hf_dataset,
    from_torch_dataset,
    is_hf_dataset,
    is_torch_dataset,
)
from psco.data.reading.pack import pack
from psco.data.reading.shardpaths import are_shards
from psco.data.reading.shards import load_shards
from psco.data.reading.undecodable import MAX_BAD
from psco.data.sets.benchmarks import load_benchmark
from psco.data.sets.catalogue import BENCHMARKS
from psco.data.sets.glyphs import load_glyphs
from psco.errors import InputError, unknown_name

# Other splits of a data set: its name and the options of its loader.
VARIANTS: dict[str, tuple[str, dict[str, Any]]] = {
    "omniglot:paper": ("omniglot", {"scheme": "paper"}),  # 1200/100/323, as in the paper's text
}


def has_splits(source: object) -> bool:
    """Whether a source has splits: data sets with a name have them."""
    return isinstance(source, str) and source in dataset_names()


def base_name(source: object) -> str:
    """Return the name of a data set without its variant: ``omniglot`` for ``omniglot:paper``."""
    return VARIANTS[source][0] if isinstance(source, str) and source in VARIANTS else str(source)


def load_dataset(
    source: object,
    split: str = "train",
    root: str | Path | None = None,
    *,
    size: int | None = None,
    channels: int | None = None,
    aspect: float = 1.0,
    max_bad: float = MAX_BAD,
    progress: bool = True,
) -> ImageSet:
    """Load a set of images.

    Parameters
    ----------
    source
        The name of a data set (``"glyphs"``) or of another split of one (``"omniglot:paper"``), a
        folder or zip archive of images (sub-folders are classes), tar shards (a pattern such as
        ``"data-{000000..000123}.tar"``, a glob, a folder of .tar files), a CSV file of paths, a
        list of paths, a uint8 array (n, H, W) or (n, H, W, C), a torch or Hugging Face data set, or
        an `ImageSet`.
    split
        ``train``, ``val`` or ``test`` of a named data set; others have no splits.
    root
        Folder of a named data set, or its parent; by default ``PSCO_DATA``.
    size
        Side of the images in pixels; by default that of the named data set, else 84. Arrays and
        image sets are not resized.
    channels
        1 for grey or 3 for RGB; by default that of the named data set or array, else 3.
    aspect
        Width over height of the images, whose short side is ``size``; files are cropped to it
        around their centre. Named data sets other than ImageNet, arrays and image sets have their
        own.
    max_bad
        Fraction of image files, in [0, 1], that may be undecodable; they are skipped.
    progress
        Show progress bars on stderr.

    Raises
    ------
    InputError
        If there is no such source, or it has no usable images.
    """
    if aspect != 1 and not _is_read_from_files(source):
        raise InputError(
            f"image.aspect={aspect:g} requires image files of your own or imagenet, and these "
            f"images have their own shape; --set image.aspect=1"
        )
    if isinstance(source, ImageSet):
        return with_channels(source, channels)
    if isinstance(source, np.ndarray):
        return with_channels(from_array(source), channels)
    if source == "glyphs":
        return with_channels(load_glyphs(split), channels)
    if isinstance(source, str) and source in BENCHMARKS:
        options = {} if aspect == 1 else {"aspect": aspect}
        return load_benchmark(source, split, root, size, channels, **options)
    if isinstance(source, str) and source in VARIANTS:
        name, variant = VARIANTS[source]
        images = load_benchmark(name, split, root, size, channels, **variant)
        return replace(images, name=source)
    size, channels = size or 84, channels or 3
    shape = with_aspect(size, aspect)
    if isinstance(source, (str, os.PathLike)):
        if are_shards(source):
            return load_shards(source, shape, channels, max_bad=max_bad, progress=progress)
        path = Path(source)
        looks_like_a_name = path.name == source and not path.suffix
        if looks_like_a_name and not path.exists():
            raise unknown_name("data set or folder", path.name, dataset_names())
        return pack(list_images(path), shape, channels, max_bad=max_bad, progress=progress)
    if isinstance(source, (list, tuple)) and all(isinstance(p, (str, os.PathLike)) for p in source):
        return pack(list_paths(source), shape, channels, max_bad=max_bad, progress=progress)
    if is_hf_dataset(source):
        return from_hf_dataset(source, size, channels, progress=progress)
    if is_torch_dataset(source):
        return from_torch_dataset(source, size, channels, progress=progress)
    raise InputError(
        f"cannot load images from an object of type {type(source).__name__}; give the name of a "
        f"data set, a folder, a .zip or .csv file, a list of paths, an array or a torch data set"
    )


def _is_read_from_files(source: object) -> bool:
    """Whether images are decoded from files in a size of our choice."""
    if isinstance(source, (str, os.PathLike)):
        return source == "imagenet" or not has_splits(source)
    return isinstance(source, (list, tuple))


def dataset_names() -> list[str]:
    """List the named data sets."""
    return ["glyphs", *BENCHMARKS, *VARIANTS]
