"""miniImageNet: 100 classes of ImageNet, 600 images each, in any of the forms it is passed on in.

Some copies are pickles, which can run any code when they are read. Here nothing that a pickle names
is called: plain containers are rebuilt by Python, arrays from their bytes by this module.
"""

from __future__ import annotations

import pickle
import pickletools
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from PIL import Image

from psco.data.imageset import ImageSet
from psco.data.reading.decode import square_image
from psco.data.reading.listing import Listing, image_names, list_classes
from psco.data.reading.pack import pack
from psco.data.reading.source import FolderSource, Source
from psco.data.sets.catalogue import data_folder, image_source, missing_files
from psco.data.sets.splits import enough_classes, read_csv, resolve_split
from psco.errors import InputError


def load_miniimagenet(
    split: str = "train", root: str | Path | None = None, *, size: int = 84, channels: int = 3
) -> ImageSet:
    """Give a split of miniImageNet, decoded at the first call and read from the cache afterwards.

    Parameters
    ----------
    split
        ``train`` (64 classes), ``val`` (16) or ``test`` (20).
    root
        The folder of the data set or the one above it; by default ``PSCO_DATA``. It holds class
        folders in ``train``, ``val`` and ``test``; or ``train.csv``, ``val.csv`` and ``test.csv``
        (``filename,label``) with the images in any folder or in one zip archive; or the pickles
        ``mini-imagenet-cache-train.pkl`` and so on, which are read into memory.
    size
        Side in pixels.
    channels
        1 for grey, 3 for RGB.

    Raises
    ------
    InputError
        If files or columns are missing or damaged, or a pickle holds more than arrays.
    """
    listed = list_miniimagenet(split, root)
    if isinstance(listed, Listing):
        return pack(listed, size, channels)
    if listed.images.shape[1:] == (size, size, channels):
        return listed
    images = [square_image(Image.fromarray(image), size, channels) for image in listed.images[:]]
    return ImageSet(np.stack(images), listed.labels, listed.classes, listed.name, listed.split)


def list_miniimagenet(split: str = "train", root: str | Path | None = None) -> Listing | ImageSet:
    """List the images of a split, or read them where they are a pickle; errors as of loading."""
    settled = resolve_split("miniimagenet", split, ["train", "val", "test"])
    place = data_folder("miniimagenet", root)
    pickled = place / f"mini-imagenet-cache-{settled}.pkl"
    if pickled.is_file():
        return _from_pickle(pickled, settled)
    source = image_source("miniimagenet", place)
    files = image_names(source)
    table = _read_table(source, place, f"{settled}.csv")
    if table is None:
        files = [file for file in files if settled in file.split("/")[-3:-2]]
        labels = [file.split("/")[-2] for file in files]
    else:
        files, labels = _look_up(table, files, f"{settled}.csv", source)
    if not files:
        raise missing_files("miniimagenet", place, f"images of the split {settled}")
    return enough_classes(list_classes(source, files, labels, "miniimagenet", settled))


def _read_table(source: Source, place: Path, table: str) -> list[dict[str, str]] | None:
    """Read the table of a split, which lies at the top of the archive or folder; None without."""
    for holder in (source, *([FolderSource(place)] if place.is_dir() else [])):
        if table in holder.names():
            return read_csv(holder.read(table), ["filename", "label"], f"{holder.path}/{table}")
    return None


def _look_up(
    rows: list[dict[str, str]], files: list[str], table: str, source: Source
) -> tuple[list[str], list[str]]:
    """Give file and label of each row; the table knows files by name, wherever they are."""
    by_name = {file.rpartition("/")[2]: file for file in files}
    missing = [row["filename"] for row in rows if row["filename"] not in by_name]
    if missing:
        raise InputError(
            f"{len(missing)} of the {len(rows)} images that {table} names are missing in "
            f"{str(source.path)!r}, such as {missing[0]!r}; complete the copy"
        )
    return [by_name[row["filename"]] for row in rows], [row["label"] for row in rows]


def _from_pickle(file: Path, split: str) -> ImageSet:
    """Read ``image_data`` and ``class_dict``, or ``data`` and ``labels``, from a pickle."""
    content = read_pickle(file)
    try:
        images = np.asarray(content["image_data" if "image_data" in content else "data"])
        if images.ndim != 4 or images.shape[3] != 3 or images.size == 0:
            raise ValueError(f"images of shape {images.shape}")
        if "class_dict" in content:
            names = np.full(len(images), "", dtype=object)
            for name, members in content["class_dict"].items():
                names[np.asarray(members, dtype=np.int64)] = str(name)
        else:
            names = np.array([str(label) for label in content["labels"]], dtype=object)
        classes, labels = np.unique(names.astype(str), return_inverse=True)
        found = ImageSet(images, labels, tuple(classes.tolist()), "miniimagenet", split)
    except InputError as error:
        raise InputError(f"{str(file)!r}: {error}") from None
    except Exception as error:  # the content can be anything
        raise InputError(
            f"{str(file)!r} must hold image_data with class_dict, or data with labels, for the "
            f"same images; it has {_keys(content)} ({_reason(error)})"
        ) from None
    if len(classes) < 2 or "" in classes:
        raise InputError(f"{str(file)!r} has images without a class, or fewer than two classes")
    return found


def read_pickle(file: Path) -> Any:
    """Read a pickle of plain containers, numbers, texts and arrays, by Python 2 or 3.

    Raises
    ------
    InputError
        If it is damaged, or names anything else; nothing that it names is run.
    """
    try:
        with file.open("rb") as content:
            _check_sizes(content)
            content.seek(0)
            return _PlainUnpickler(content, encoding="latin1").load()
    except InputError as error:
        raise InputError(f"{str(file)!r} {error}") from None
    except Exception as error:  # damaged pickles lead to nearly any error
        raise InputError(
            f"{str(file)!r} is no pickle, or damaged ({_reason(error)}); get it anew"
        ) from None


def _check_sizes(content: BinaryIO) -> None:
    """Refuse a pickle that claims to be larger than it is: unpickling allocates what it claims."""
    for number, (opcode, argument, _) in enumerate(pickletools.genops(content)):
        if opcode.name.endswith("PUT") and int(argument or 0) > number:
            raise ValueError(f"object {argument} comes before there are so many")


def _keys(content: object) -> str:
    if not isinstance(content, dict):
        return f"a {type(content).__name__}"
    return ascii([key for key in content if isinstance(key, str)])[:200]


def _reason(error: Exception) -> str:
    return f"{type(error).__name__}: {' '.join(str(error).split())[:200]}"


class _Dtype:
    """Stands for a ``numpy.dtype`` while a pickle is read."""

    def __init__(self, code: str, *_: object) -> None:
        if not re.fullmatch(r"[biuf][1248]|[SU][1-9][0-9]{0,3}", code):
            raise InputError(f"has an array of type {code!r}; only numbers and texts are read")
        self.dtype = np.dtype(code)

    def __setstate__(self, state: Any) -> None:
        self.dtype = self.dtype.newbyteorder(state[1])


class _Array(np.ndarray):
    """An array that is filled from a pickle, with a type that was looked at."""

    def __setstate__(self, state: Any) -> None:
        _, shape, dtype, fortran, content = state
        # Python 2 did not tell bytes from text.
        raw = content.encode("latin1") if isinstance(content, str) else content
        if not isinstance(raw, bytes):
            raise TypeError("the content of an array is no bytes")
        checked: Any = (1, tuple(shape), dtype.dtype, bool(fortran), raw)
        super().__setstate__(checked)


def _from_bytes(content: Any, dtype: _Dtype, shape: Any, order: Any) -> np.ndarray:
    array = np.frombuffer(content, dtype=dtype.dtype).reshape(shape, order=order)
    return np.array(array)  # writable


_STAND_INS: dict[str, Callable[..., Any]] = {
    "numpy.dtype": _Dtype,
    "numpy.ndarray": lambda: None,  # an argument of the next one, never called
    "numpy.core.multiarray._reconstruct": lambda *_: _Array((0,), dtype=np.uint8),
    "numpy.core.multiarray.scalar": lambda dtype, raw: _from_bytes(raw, dtype, (), "C").item(),
    "numpy.core.numeric._frombuffer": _from_bytes,
    "_codecs.encode": lambda text, _: text.encode("latin1"),
    "collections.OrderedDict": dict,
    **{f"builtins.{kind.__name__}": kind for kind in (list, tuple, dict, set, frozenset)},
}


class _PlainUnpickler(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        """Give the stand-in for what a pickle names; InputError if there is none."""
        modern = module.replace("numpy._core", "numpy.core").replace("__builtin__", "builtins")
        stand_in = _STAND_INS.get(f"{modern}.{name}")
        if stand_in is None:
            asked = f"{module}.{name}"[:100]
            raise InputError(
                f"asks for {asked!r}, which may run code, so it was not read; get a copy with "
                "arrays only"
            )
        # A pickle can set the attributes of what it is given: never of what others will use.
        return stand_in if isinstance(stand_in, type) else lambda *parts: stand_in(*parts)

    def persistent_load(self, pid: Any) -> Any:
        """Refuse references to things outside of the pickle."""
        raise InputError(
            f"refers to {str(pid)[:100]!r}, which is outside of it; get a copy with arrays only"
        )
