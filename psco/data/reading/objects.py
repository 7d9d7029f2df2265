"""Image sets from objects in memory: arrays, torch data sets and Hugging Face data sets."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from PIL import Image

from psco.data.imageset import ImageSet
from psco.data.reading.decode import decode_image, square_image
from psco.errors import InputError, and_more
from psco.progress import Bar

IMAGE_COLUMNS = ("image", "img")
LABEL_COLUMNS = ("label", "labels", "fine_label")
_OVERSHOOT = 0.1  # by which bicubic resizing may leave the range of the values


def from_array(
    array: np.ndarray, labels: np.ndarray | None = None, name: str = "array"
) -> ImageSet:
    """Return an image set of the images in an array.

    Parameters
    ----------
    array
        (n, H, W) or (n, H, W, 1 or 3) uint8.
    labels
        (n,) integers or strings, or None.
    name
        Name of the image set.

    Raises
    ------
    InputError
        If the array has another shape or type, or there is not one label per image.
    """
    numbers, classes = _number_labels(None if labels is None else labels.tolist())
    return ImageSet(array[..., None] if array.ndim == 3 else array, numbers, classes, name)


def is_torch_dataset(source: object) -> bool:
    """Whether this is a ``torch.utils.data.Dataset``."""
    module = sys.modules.get("torch.utils.data")  # not loaded: then no object can be one
    return module is not None and isinstance(source, module.Dataset)


def is_hf_dataset(source: object) -> bool:
    """Whether this looks like a data set of Hugging Face's ``datasets``."""
    return isinstance(getattr(source, "features", None), Mapping)


def from_torch_dataset(
    dataset: Any, size: int, channels: int, *, progress: bool = True
) -> ImageSet:
    """Read all items of a map-style torch data set.

    Parameters
    ----------
    dataset
        Has a length; an item is an image, or a tuple of an image and a label. An image is a Pillow
        image, an array (H, W) or (H, W, C), or a tensor (H, W) or (C, H, W), with values from 0 to
        255 or from 0.0 to 1.0. The attribute ``classes``, if any, names the classes.
    size, channels
        Side and channels of the result; see `decode_image`.
    progress
        Show a progress bar on stderr.

    Raises
    ------
    InputError
        If it has no length, or an item is something else.
    """
    items = (dataset[index] for index in range(_length(dataset)))
    pairs = (item[:2] if _is_pair(item) else (item, None) for item in items)
    name = type(dataset).__name__
    return _gather(
        pairs, _length(dataset), size, channels, name, getattr(dataset, "classes", None), progress
    )


def from_hf_dataset(dataset: Any, size: int, channels: int, *, progress: bool = True) -> ImageSet:
    """Read all rows of one split of a Hugging Face data set.

    Parameters
    ----------
    dataset
        Has a length, ``features`` and rows. The column ``image`` (or ``img``) holds Pillow images
        or mappings with the ``bytes`` of a file; the column ``label``, if any, the labels.
    size, channels
        Side and channels of the result; see `decode_image`.
    progress
        Show a progress bar on stderr.

    Raises
    ------
    InputError
        If it has no length or no such column, or an image is not usable.
    """
    features = dataset.features
    image = next((column for column in IMAGE_COLUMNS if column in features), None)
    label = next((column for column in LABEL_COLUMNS if column in features), None)
    if image is None:
        raise InputError(
            f"the data set has the columns {and_more(features, 8)}; it needs one of "
            f"{', '.join(IMAGE_COLUMNS)} with the images"
        )
    rows = (dataset[index] for index in range(_length(dataset)))
    pairs = ((row[image], row[label] if label else None) for row in rows)
    names = getattr(features[label], "names", None) if label else None
    return _gather(pairs, _length(dataset), size, channels, "dataset", names, progress)


def _length(dataset: Any) -> int:
    try:
        number = len(dataset)
    except TypeError:
        raise InputError(
            f"{type(dataset).__name__} has no length; only map-style data sets can be read"
        ) from None
    if number == 0:
        raise InputError(f"the data set {type(dataset).__name__} is empty")
    return number


def _is_pair(item: object) -> bool:
    return isinstance(item, (tuple, list)) and len(item) >= 2


def _gather(
    pairs: Iterable[tuple[Any, Any]],
    number: int,
    size: int,
    channels: int,
    name: str,
    classes: Sequence[str] | None,
    progress: bool,
) -> ImageSet:
    images = np.empty((number, size, size, channels), dtype=np.uint8)
    labels = []
    with Bar("read images", progress) as bar:
        for index, (image, label) in enumerate(pairs):
            images[index] = _square(image, size, channels, f"item {index} of {name}")
            labels.append(label)
            bar.update((index + 1) / number)
    numbers, known = _number_labels([_plain(label) for label in labels], classes)
    return ImageSet(images, numbers, known, name)


def _square(image: Any, size: int, channels: int, name: str) -> np.ndarray:
    if isinstance(image, Mapping) and isinstance(image.get("bytes"), bytes):
        return decode_image(image["bytes"], size, channels, name=name)
    if isinstance(image, Image.Image):
        return square_image(image, size, channels)
    if hasattr(image, "detach"):  # a tensor, whose channels come first
        tensor = image.detach().cpu()
        array = (tensor.float() if tensor.is_floating_point() else tensor).numpy()
        array = np.moveaxis(array, 0, -1) if array.ndim == 3 else array
    elif isinstance(image, np.ndarray):
        array = image
    else:
        raise InputError(
            f"{name} is of type {type(image).__name__}; it must be a Pillow image, an array or a "
            f"tensor"
        )
    if array.ndim == 3 and array.shape[2] == 1:
        array = array[..., 0]
    if array.size == 0 or not (array.ndim == 2 or (array.ndim == 3 and array.shape[2] in (3, 4))):
        raise InputError(f"{name} has shape {tuple(image.shape)}; it must be a grey or RGB image")
    return square_image(Image.fromarray(to_uint8(array, name)), size, channels)


def to_uint8(array: np.ndarray, name: str) -> np.ndarray:
    """Convert values from 0 to 255, or from 0.0 to 1.0, to uint8."""
    if array.dtype == np.uint8:
        return np.ascontiguousarray(array)
    if array.dtype.kind not in "fbiu":
        raise InputError(f"{name} has values of type {array.dtype}; they must be numbers")
    is_fraction = array.dtype.kind in "fb"
    values = array.astype(np.float32) * (255 if is_fraction else 1)
    slack = 255 * _OVERSHOOT if is_fraction else 0
    if not (values.min() >= -slack and values.max() <= 255 + slack):
        raise InputError(
            f"{name} has values from {array.min()} to {array.max()} of type {array.dtype}; they "
            f"must be integers from 0 to 255 or floats from 0 to 1, not normalised"
        )
    return np.rint(values).clip(0, 255).astype(np.uint8)


def _plain(label: Any) -> Any:
    # Scalars of numpy and torch become Python numbers.
    return label.item() if getattr(label, "ndim", None) == 0 else label


def _number_labels(
    labels: list[Any] | None, classes: Sequence[str] | None = None
) -> tuple[np.ndarray | None, tuple[str, ...]]:
    """Return label indices from 0, and class names; none unless every image has a usable label.

    Integers that are indices into the given classes are kept. A negative integer marks an unknown
    label.
    """
    if not labels or not all(isinstance(label, (int, str)) for label in labels):
        return None, ()
    if all(isinstance(label, int) for label in labels):
        if min(labels) < 0:
            return None, ()
        if classes is not None and max(labels) < len(classes):
            return np.array(labels, dtype=np.int64), tuple(map(str, classes))
    known = sorted(set(labels), key=lambda label: (isinstance(label, str), label))
    number = {label: index for index, label in enumerate(known)}
    return np.array([number[label] for label in labels], dtype=np.int64), tuple(map(str, known))
