"""ImageNet: too large to prepare, so its images are decoded when they are looked at."""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np

from psco.data.benchmarks import data_folder, missing_files
from psco.data.decode import decode_image
from psco.data.imageset import ImageSet
from psco.data.listing import Listing, image_files, list_classes
from psco.data.source import FolderSource
from psco.data.splits import enough_classes, settle_split
from psco.errors import InputError


class LazyImages:
    """Image files that index like an array (n, S, S, C) uint8, decoded at each access.

    Along the first axis any index of an array will do: a number, a slice, numbers in an array of
    any shape, a mask. ``np.asarray`` decodes everything.

    Parameters
    ----------
    listing
        The files.
    size
        Side S of the result: the centre of an image whose short side is ``short``.
    channels
        1 for grey, 3 for RGB.
    short
        At least ``size``; by default equal to it.
    """

    dtype = np.dtype(np.uint8)
    ndim = 4
    decodes = True  # so that training hands it to worker processes

    def __init__(
        self, listing: Listing, size: int, channels: int, short: int | None = None
    ) -> None:
        self.shape = (len(listing), size, size, channels)
        self._listing, self._short = listing, short or size
        self._numbers = np.arange(len(listing))

    def __len__(self) -> int:
        return len(self._listing)

    def __getitem__(self, index: Any) -> np.ndarray:
        """Decode images; InputError if one cannot be."""
        numbers = self._numbers[index]
        images = np.empty((numbers.size, *self.shape[1:]), dtype=np.uint8)
        with ThreadPoolExecutor(os.cpu_count()) as pool:
            for place, image in enumerate(pool.map(self._decode, numbers.reshape(-1))):
                images[place] = image
        return images.reshape(*numbers.shape, *self.shape[1:])

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        if copy is False:
            raise ValueError("images that are decoded at each access cannot be given uncopied")
        return self[:].astype(dtype or self.dtype, copy=False)

    def _decode(self, number: int) -> np.ndarray:
        file = self._listing.files[number]
        image = decode_image(self._listing.source.read(file), self._short, self.shape[3], name=file)
        edge = (self._short - self.shape[1]) // 2
        return image[edge : edge + self.shape[1], edge : edge + self.shape[1]]


def load_imagenet(
    split: str = "train", root: str | Path | None = None, *, size: int = 224, channels: int = 3
) -> ImageSet:
    """Give ImageNet (ILSVRC 2012) as images that are decoded at each access.

    Parameters
    ----------
    split
        ``train``; ``val`` or ``test``, both the validation images.
    root
        The folder with ``train`` and ``val``, or the one above it; by default ``PSCO_DATA``.
    size
        Side in pixels. Training images are brought to this short side and their centre is cut out,
        since views crop them further; the others to 256/224 of it first.
    channels
        1 for grey, 3 for RGB.

    Raises
    ------
    InputError
        If the files are not there, or there is no such split.
    """
    if size < 1:
        raise InputError(f"size must be at least 1, not {size}")
    listing = list_imagenet(split, root)
    short = size if listing.split == "train" else round(size * 256 / 224)
    images = LazyImages(listing, size, channels, short)
    return ImageSet(images, listing.labels, listing.classes, listing.name, listing.split)


def list_imagenet(split: str = "train", root: str | Path | None = None) -> Listing:
    """List the images of a split; parameters and errors as of `load_imagenet`."""
    settled = settle_split("imagenet", split, ["train", "val", "test"])
    place = data_folder("imagenet", root)
    folder = place / ("train" if settled == "train" else "val")
    if not folder.is_dir():
        raise missing_files("imagenet", place, f"{folder.name}/")
    source = FolderSource(folder)
    files = [file for file in image_files(source) if "/" in file]
    if not files:
        raise InputError(
            f"the images in {str(folder)!r} are in no class folders; sort them into one for each "
            "class, such as n01440764"
        )
    names = [file.split("/")[0] for file in files]
    return enough_classes(list_classes(source, files, names, "imagenet", settled))
