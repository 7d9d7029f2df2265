"""Images that other libraries hold in memory: arrays, data sets of torch and of Hugging Face."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from PIL import Image

from psco.data.imageset import ImageSet
from psco.data.reading.decode import decode_image, square_image
from psco.errors import InputError
from psco.progress import Bar

IMAGE_COLUMNS = ("image", "img")
LABEL_COLUMNS = ("label", "labels", "fine_label")
_OVERSHOOT = 0.1  # by which bicubic resizing leaves the range of the values


def from_array(
    array: np.ndarray, labels: np.ndarray | None = None, name: str = "array"
) -> ImageSet:
    """Take images that are an array already.

    Parameters
    ----------
    array
        (n, H, W) or (n, H, W, 1 or 3) uint8.
    labels
        (n,) whole numbers or texts, or None.
    name
        For reports.

    Raises
    ------
    InputError
        If the array has another shape or type, or the labels are not one for each image.
    """
    numbers, classes = _number_labels(None if labels is None else labels.tolist())
    return ImageSet(array[..., None] if array.ndim == 3 else array, numbers, classes, name)


def is_torch_dataset(source: object) -> bool:
    """Say whether this is a ``torch.utils.data.Dataset``."""
    from torch.utils.data import Dataset

    return isinstance(source, Dataset)


def is_hf_dataset(source: object) -> bool:
    """Say whether this looks like a data set of Hugging Face's ``datasets``."""
    return isinstance(getattr(source, "features", None), Mapping)


def from_torch_dataset(
    dataset: Any, size: int, channels: int, *, progress: bool = True
) -> ImageSet:
    """Read all items of a map-style data set of torch.

    Parameters
    ----------
    dataset
        Has a length and gives, for an index, an image or a tuple of an image and a label. An image
        is one of Pillow's, an array (H, W) or (H, W, C), or a tensor (H, W) or (C, H, W); its
        values are 0 to 255, or 0.0 to 1.0. Attribute ``classes``, if any, names the classes.
    size, channels
        Of the result; see `decode_image`.
    progress
        Show a progress bar on stderr.

    Raises
    ------
    InputError
        If it has no length, or an item is not as said.
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
        Has a length, ``features`` and rows, of which the column ``image`` (or ``img``) is a Pillow
        image or a mapping with the ``bytes`` of a file, and ``label`` the label, if any.
    size, channels
        Of the result; see `decode_image`.
    progress
        Show a progress bar on stderr.

    Raises
    ------
    InputError
        If it has no length or no such column, or an image cannot be used.
    """
    features = dataset.features
    image = next((column for column in IMAGE_COLUMNS if column in features), None)
    label = next((column for column in LABEL_COLUMNS if column in features), None)
    if image is None:
        raise InputError(
            f"the data set has the columns {', '.join(features)}; expected one of "
            f"{', '.join(IMAGE_COLUMNS)} for the images"
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
            f"a data set is read item by item and needs a length; {type(dataset).__name__} has none"
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
            f"{name} is of type {type(image).__name__}; expected an image of Pillow, an array or a "
            f"tensor"
        )
    if array.ndim == 3 and array.shape[2] == 1:
        array = array[..., 0]
    if array.size == 0 or not (array.ndim == 2 or (array.ndim == 3 and array.shape[2] in (3, 4))):
        raise InputError(f"{name} has shape {tuple(image.shape)}, which is no grey or RGB image")
    return square_image(Image.fromarray(_bytes(array, name)), size, channels)


def _bytes(array: np.ndarray, name: str) -> np.ndarray:
    """Bring values from 0 to 255, or from 0.0 to 1.0, to uint8."""
    if array.dtype == np.uint8:
        return np.ascontiguousarray(array)
    if array.dtype.kind not in "fbiu":
        raise InputError(f"{name} has values of type {array.dtype}, which are no brightnesses")
    fraction = array.dtype.kind in "fb"
    values = array.astype(np.float32) * (255 if fraction else 1)
    spare = 255 * _OVERSHOOT if fraction else 0
    if not (values.min() >= -spare and values.max() <= 255 + spare):
        raise InputError(
            f"{name} has values from {array.min()} to {array.max()} of type {array.dtype}; give "
            f"whole numbers from 0 to 255 or fractions from 0 to 1, without normalising them"
        )
    return np.rint(values).clip(0, 255).astype(np.uint8)


def _plain(label: Any) -> Any:
    # Numbers of numpy and of torch become those of Python.
    return label.item() if getattr(label, "ndim", None) == 0 else label


def _number_labels(
    labels: list[Any] | None, classes: Sequence[str] | None = None
) -> tuple[np.ndarray | None, tuple[str, ...]]:
    """Give labels numbers from 0; unless every image has a usable label, there are none.

    Whole numbers that are indices into the given classes stay as they are. A negative number means
    that the label is not known.
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
