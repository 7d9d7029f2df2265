"""Pictures as people have them (paths, folders, Pillow images, arrays) become arrays of pixels."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image
from torch import Tensor

from psco.data import with_channels
from psco.data.reading.decode import decode_image, probe_image
from psco.data.reading.folders import ChosenFiles, list_images, list_paths
from psco.data.reading.listing import Listing, image_files
from psco.data.reading.objects import from_array, from_torch_dataset
from psco.data.reading.pool import each_file
from psco.data.reading.source import FolderSource
from psco.errors import InputError
from psco.recipes.recipe import ImageSettings

BATCH = 256  # pictures in memory at a time
_GREY_MODES = ("1", "L", "LA", "La", "I", "F")


def list_pictures(places: Sequence[str | os.PathLike[str]]) -> Listing:
    """List the pictures in files and folders, the latter at any depth.

    A single folder, zip archive or CSV file may say the classes, too; see `list_images`.

    Raises
    ------
    InputError
        If there are none, or one of the places does not exist.
    """
    paths = [Path(place) for place in places]
    if len(paths) == 1 and (paths[0].is_dir() or paths[0].suffix.lower() in (".zip", ".csv")):
        return list_images(paths[0])
    files: list[str] = []
    for path in paths:
        folder = image_files(FolderSource(path)) if path.is_dir() else None
        files += [str(path)] if folder is None else [str(path / name) for name in folder]
    return list_paths(list(dict.fromkeys(files)))


def path_in(listing: Listing, name: str) -> str:
    """Give the path of a file of a listing as a person would write it."""
    return name if isinstance(listing.source, ChosenFiles) else str(listing.source.path / name)


def decoded(
    listing: Listing, image: ImageSettings, *, title: str = "", progress: bool = False
) -> Iterator[np.ndarray | InputError]:
    """Decode the files of a listing as an encoder wants them, in order, a few ahead.

    Pictures with other channels than the encoder's are converted; the first such is told on
    stderr.

    Parameters
    ----------
    listing
        The files.
    image
        Of the encoder's recipe.
    title, progress
        Of the progress bar, and whether there is one.

    Yields
    ------
    np.ndarray or InputError
        (size, size, channels) uint8, or what is wrong with the file.
    """

    def work(content: bytes, name: str) -> tuple[np.ndarray, bool]:
        pixels = decode_image(content, image.source_size, image.channels, name=name)
        grey = _is_grey_mode(probe_image(content, name=name).mode)
        return pixels, grey == (image.channels == 1)

    told = False
    results = each_file(listing.source, listing.files, work, title=title, progress=progress)
    for name, result in zip(listing.files, results, strict=True):
        if isinstance(result, InputError):
            yield result
            continue
        pixels, fits = result
        if not (fits or told):
            told = True
            _tell_of_conversion(name, image)
        yield pixels


def image_batches(pictures: Any, image: ImageSettings) -> Iterator[np.ndarray]:
    """Bring pictures of any kind to what an encoder takes, some at a time.

    The first one with other channels than the encoder's is told on stderr.

    Parameters
    ----------
    pictures
        A sequence of paths, of Pillow images, of arrays (H, W[, C]) or tensors (H, W), (C, H, W);
        or all images at once, uint8, as an array (n, H, W[, C]) or a tensor of the same shape or
        of (n, C, H, W).
    image
        Of the encoder's recipe.

    Yields
    ------
    np.ndarray
        (b, H, W, C) uint8, b from 1 to 256.

    Raises
    ------
    InputError
        If there are none, or one of them is no picture.
    """
    if _is_whole(pictures):
        whole = _channels_last(pictures)
        for begin in range(0, len(whole), BATCH):
            some = from_array(whole[begin : begin + BATCH])
            if begin == 0 and some.channels != image.channels:
                _tell_of_conversion("#0", image)
            yield with_channels(some, image.channels).images[:]
        return
    items = as_list(pictures)
    if all(isinstance(item, (str, os.PathLike)) for item in items):
        yield from _stacks(decoded(list_paths(items), image))
        return
    told = False
    for begin in range(0, len(items), BATCH):
        part = items[begin : begin + BATCH]
        some = from_torch_dataset(part, image.source_size, image.channels, progress=False)
        others = [n for n, item in enumerate(part) if _is_grey(item) != (image.channels == 1)]
        if others and not told:
            told = True
            _tell_of_conversion(f"#{begin + others[0]}", image)
        yield some.images[:]


def count_pictures(pictures: Any) -> int:
    """Count the pictures that `image_batches` would give; InputError where it would raise one."""
    return len(pictures if _is_whole(pictures) else as_list(pictures))


def as_list(pictures: Any) -> list[Any]:
    """Give the single pictures of a sequence that is not one array.

    Raises
    ------
    InputError
        If it is no sequence, or an empty one, or holds numbers.
    """
    if isinstance(pictures, (str, os.PathLike, Image.Image)) or not hasattr(pictures, "__len__"):
        raise InputError(
            f"X must be a list of pictures, not a single {type(pictures).__name__}: [X] is one"
        )
    if (
        getattr(pictures, "ndim", 1) != 1
        or getattr(getattr(pictures, "dtype", None), "kind", "O") not in "OU"
    ):
        raise InputError(
            f"an encoder takes pictures: paths, Pillow images or uint8 arrays (n, H, W[, C]), not "
            f"numbers of shape {tuple(pictures.shape)}; features go with encoder=None"
        )
    items = list(pictures)
    if not items:
        raise InputError("X is empty: there are 0 pictures")
    return items


def names_of(pictures: Any, first: int = 0) -> list[str]:
    """Name every picture: its path where there is one, else its number, counted from ``first``."""
    return [
        os.fspath(item) if isinstance(item, (str, os.PathLike)) else f"#{number}"
        for number, item in enumerate(pictures, start=first)
    ]


def _is_grey(picture: Any) -> bool:  # an image of Pillow, an array or a tensor
    if isinstance(picture, Image.Image):
        return _is_grey_mode(picture.mode)
    channels = 0 if isinstance(picture, Tensor) else -1
    return bool(picture.ndim == 2 or picture.shape[channels] == 1)


def _is_grey_mode(mode: str) -> bool:
    return mode in _GREY_MODES or mode.startswith("I;16")


def _tell_of_conversion(name: str, image: ImageSettings) -> None:
    kind = "grey, as the encoder sees it" if image.channels == 1 else "RGB"
    print(f"note: {name!r} and others like it are converted to {kind}", file=sys.stderr)


def _is_whole(pictures: Any) -> bool:
    return isinstance(pictures, (np.ndarray, Tensor)) and pictures.ndim >= 3


def _channels_last(pictures: np.ndarray | Tensor) -> np.ndarray:
    array = pictures.detach().cpu().numpy() if isinstance(pictures, Tensor) else pictures
    first = isinstance(pictures, Tensor) and array.ndim == 4 and array.shape[1] in (1, 3)
    array = np.moveaxis(array, 1, 3) if first and array.shape[3] not in (1, 3) else array
    if len(array) == 0:
        raise InputError("X is empty: there are 0 pictures")
    return array


def _stacks(results: Iterator[np.ndarray | InputError]) -> Iterator[np.ndarray]:
    images: list[np.ndarray] = []
    for result in results:
        if isinstance(result, InputError):
            raise result
        images.append(result)
        if len(images) == BATCH:
            yield np.stack(images)
            images = []
    if images:
        yield np.stack(images)
