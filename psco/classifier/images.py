"""Images as people have them (paths, Pillow images, arrays, tensors), as pixels and embeddings."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from psco.data import with_channels
from psco.data.reading.decode import decode_image, probe_image
from psco.data.reading.folders import list_paths
from psco.data.reading.listing import Listing
from psco.data.reading.objects import from_array, from_torch_dataset, to_uint8
from psco.data.reading.pool import each_file
from psco.errors import InputError, quoted
from psco.evaluation.embed import Encoder
from psco.evaluation.rules import Embeddings, join_embeddings
from psco.recipes.recipe import ImageSettings
from psco.views import resize, to_batch

BATCH = 256  # images in memory at a time
THUMBNAIL = 32  # pixels
_GREY_MODES = ("1", "L", "LA", "La", "I", "F")
_conversions_reported: set[str] = set()  # in this process


def collect_images(X: Any) -> np.ndarray | list[Any]:
    """Return images as one array, channels last, or as a list of single images.

    Parameters
    ----------
    X
        A sequence of paths, Pillow images, arrays (H, W[, C]) or tensors (H, W), (C, H, W); or all
        images at once, as an array (n, H, W[, C]) or a tensor of that shape or (n, C, H, W). An
        array (H, W, C) with 1, 3 or 4 channels is one image. Pixels are whole numbers from 0 to
        255 or floats from 0 to 1.

    Raises
    ------
    InputError
        If X is empty, holds no images, or can be read in two ways.
    """
    if isinstance(X, (np.ndarray, Tensor)) and X.ndim >= 3:
        images = _collect_array(X)
    else:
        images = _collect_sequence(X)
    if len(images) == 0:
        raise InputError("X is empty: it has 0 images")
    return images


def image_names(images: Sequence[Any] | np.ndarray, first: int = 0) -> list[str]:
    """Return the path of each image, or ``#`` and its number, counted from ``first``."""
    return [
        os.fspath(item) if isinstance(item, (str, os.PathLike)) else f"#{number}"
        for number, item in enumerate(images, start=first)
    ]


def embed_images(
    encoder: Encoder, images: np.ndarray | list[Any], device: str, *, with_thumbnails: bool = False
) -> tuple[Embeddings, np.ndarray | None]:
    """Embed images in batches.

    Parameters
    ----------
    encoder
        The network.
    images
        From `collect_images`.
    device
        See `choose_device`.
    with_thumbnails
        Return thumbnails, too.

    Returns
    -------
    Embeddings, np.ndarray or None
        Embeddings (n,), and thumbnails (n, 32, 32, C) uint8.
    """
    embeddings, thumbnails = [], []
    with embedder_on(choose_device(device), encoder) as embed:
        for batch in image_batches(images, encoder.recipe.image):
            embeddings.append(embed(batch))
            if with_thumbnails:
                thumbnails.append(shrink(batch))
    return join_embeddings(embeddings), np.concatenate(thumbnails) if thumbnails else None


def image_batches(images: np.ndarray | list[Any], settings: ImageSettings) -> Iterator[np.ndarray]:
    """Yield batches (b, H, W, C) uint8 of up to 256 images with the encoder's channels.

    Parameters
    ----------
    images
        From `collect_images`.
    settings
        Of the encoder's recipe.

    Raises
    ------
    InputError
        If one of them is not an image.
    """
    if isinstance(images, np.ndarray):
        yield from _array_batches(images, settings)
    elif all(isinstance(item, (str, os.PathLike)) for item in images):
        yield from _file_batches(decode_files(list_paths(images), settings))
    else:
        yield from _item_batches(images, settings)


def decode_files(
    listing: Listing, settings: ImageSettings, *, title: str = "", progress: bool = False
) -> Iterator[np.ndarray | InputError]:
    """Decode the files of a listing for an encoder, in order, a few ahead.

    Images with other channels than the encoder's are converted; the first one is reported.

    Parameters
    ----------
    listing
        The files.
    settings
        Of the encoder's recipe.
    title, progress
        Title of the progress bar, and whether to show it.

    Yields
    ------
    np.ndarray or InputError
        (size, size, channels) uint8, or the error of the file.
    """

    def work(content: bytes, name: str) -> tuple[np.ndarray, bool]:
        pixels = decode_image(content, settings.source_size, settings.channels, name=name)
        is_grey = _is_grey_mode(probe_image(content, name=name).mode)
        return pixels, is_grey == (settings.channels == 1)

    results = each_file(listing.source, listing.files, work, title=title, progress=progress)
    for name, result in zip(listing.files, results, strict=True):
        if isinstance(result, InputError):
            yield result
            continue
        pixels, has_right_channels = result
        if not has_right_channels:
            _report_conversion(name, settings)
        yield pixels


def choose_device(name: str) -> torch.device:
    """Return the device called ``auto``, ``cpu``, ``cuda``, ``cuda:1``, ``mps`` ...

    Raises
    ------
    InputError
        If this machine has no such device.
    """
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(name)
        torch.empty(0, device=device)
    except (RuntimeError, AssertionError, TypeError):
        raise InputError(f"device {name!r} is not available; 'auto' chooses one that is") from None
    return device


@contextmanager
def embedder_on(
    device: torch.device, encoder: Encoder
) -> Iterator[Callable[[np.ndarray], Embeddings]]:
    """Move an encoder to a device for the block; return the function that embeds images there.

    The function takes (n, H, W, C) uint8 and returns embeddings (n,) on the CPU.
    """

    def embed(images: np.ndarray) -> Embeddings:
        there = encoder.embed_batch(to_batch(images).to(device))
        return Embeddings(there.features.cpu(), there.support.cpu(), there.query.cpu())

    try:
        encoder.method.to(device)
        yield embed
    finally:
        encoder.method.to("cpu")


def shrink(images: np.ndarray) -> np.ndarray:
    """Return thumbnails (n, 32, 32, C) uint8 of images (n, H, W, C) uint8."""
    small = resize(to_batch(images), THUMBNAIL).clamp(0, 1)
    return (small * 255).round().to(torch.uint8).permute(0, 2, 3, 1).contiguous().numpy()


def _collect_array(X: np.ndarray | Tensor) -> np.ndarray | list[Any]:
    is_tensor = isinstance(X, Tensor)
    if is_tensor and X.ndim == 3 and X.shape[0] == 3:
        raise InputError(
            f"a tensor of shape {tuple(X.shape)} may be one RGB image or three grey ones; pass "
            f"X[None] for one, X[:, None] for three"
        )
    array: np.ndarray = X.detach().cpu().numpy() if isinstance(X, Tensor) else X
    if array.ndim == 3 and array.shape[2] in (1, 3, 4):
        return [array]
    channels_first = is_tensor and array.ndim == 4 and array.shape[1] in (1, 3)
    return np.moveaxis(array, 1, 3) if channels_first and array.shape[3] not in (1, 3) else array


def _collect_sequence(X: Any) -> list[Any]:
    if isinstance(X, (str, os.PathLike, Image.Image)) or not hasattr(X, "__len__"):
        raise InputError(
            f"X must be a list of images, not a single {type(X).__name__}; pass [X] for one image"
        )
    kind = getattr(getattr(X, "dtype", None), "kind", "O")
    if getattr(X, "ndim", 1) != 1 or kind not in "OU":
        raise InputError(
            f"an encoder takes images (paths, Pillow images, arrays), not numbers of shape "
            f"{tuple(X.shape)}; pass [X] for one grey image, or use encoder=None for features"
        )
    return list(X)


def _array_batches(images: np.ndarray, settings: ImageSettings) -> Iterator[np.ndarray]:
    for begin in range(0, len(images), BATCH):
        batch = from_array(to_uint8(images[begin : begin + BATCH], "X"))
        if batch.channels != settings.channels:
            _report_conversion(f"#{begin}", settings)
        yield with_channels(batch, settings.channels).images[:]


def _item_batches(images: list[Any], settings: ImageSettings) -> Iterator[np.ndarray]:
    for begin in range(0, len(images), BATCH):
        items = images[begin : begin + BATCH]
        batch = from_torch_dataset(items, settings.source_size, settings.channels, progress=False)
        for number, item in enumerate(items, start=begin):
            if _is_grey(item) != (settings.channels == 1):
                _report_conversion(f"#{number}", settings)
        yield batch.images[:]


def _file_batches(results: Iterator[np.ndarray | InputError]) -> Iterator[np.ndarray]:
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


def _is_grey(image: Any) -> bool:  # a Pillow image, an array or a tensor
    if isinstance(image, Image.Image):
        return _is_grey_mode(image.mode)
    channels = 0 if isinstance(image, Tensor) else -1
    return bool(image.ndim == 2 or image.shape[channels] == 1)


def _is_grey_mode(mode: str) -> bool:
    return mode in _GREY_MODES or mode.startswith("I;16")


def _report_conversion(name: str, settings: ImageSettings) -> None:
    kind = "grey" if settings.channels == 1 else "RGB"
    if kind not in _conversions_reported:
        _conversions_reported.add(kind)
        print(
            f"note: {quoted(name)} is not {kind}; such images are converted to {kind}",
            file=sys.stderr,
        )
