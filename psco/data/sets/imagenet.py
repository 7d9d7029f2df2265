"""ImageNet: too large to prepare in advance, so images are decoded at each access."""

from __future__ import annotations

from pathlib import Path

from psco.data.imageset import ImageSet
from psco.data.reading.decode import with_aspect
from psco.data.reading.lazy import LazyImages
from psco.data.reading.listing import Listing, image_files, list_classes
from psco.data.reading.source import FolderSource
from psco.data.sets.catalogue import data_folder, missing_files
from psco.data.sets.splits import check_enough_classes, resolve_split
from psco.errors import InputError, quoted


def load_imagenet(
    split: str = "train",
    root: str | Path | None = None,
    *,
    size: int = 224,
    channels: int = 3,
    aspect: float = 1.0,
) -> ImageSet:
    """Load ImageNet (ILSVRC 2012) as images that are decoded at each access.

    Parameters
    ----------
    split
        ``train``; or ``val`` or ``test``, both the validation images.
    root
        The folder with ``train`` and ``val``, or its parent; by default ``PSCO_DATA``.
    size
        Short side in pixels: images are resized to cover it and centre-cropped. Views crop them
        further in training, and recipes with ``image.test_crop`` at test.
    channels
        1 for grey, 3 for RGB.
    aspect
        Width over height; 1 for squares.

    Raises
    ------
    InputError
        If the files are missing, or there is no such split.
    """
    if size < 1:
        raise InputError(f"size must be at least 1, not {size}")
    listing = list_imagenet(split, root)
    images = LazyImages(listing, with_aspect(size, aspect), channels)
    return ImageSet(images, listing.labels, listing.classes, listing.name, listing.split)


def list_imagenet(split: str = "train", root: str | Path | None = None) -> Listing:
    """List the images of a split; parameters and errors are those of `load_imagenet`."""
    resolved = resolve_split("imagenet", split, ["train", "val", "test"])
    place = data_folder("imagenet", root)
    folder = place / ("train" if resolved == "train" else "val")
    if not folder.is_dir():
        raise missing_files("imagenet", place, f"{folder.name}/")
    source = FolderSource(folder)
    files = [file for file in image_files(source) if "/" in file]
    if not files:
        raise InputError(
            f"the images in {quoted(folder)} are not in class folders; move them to a folder for "
            f"each class, such as n01440764"
        )
    names = [file.split("/")[0] for file in files]
    return check_enough_classes(list_classes(source, files, names, "imagenet", resolved))
