"""miniImageNet: 100 classes of ImageNet, 600 images each, in any of its usual forms."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from PIL import Image

from psco.data.imageset import ImageSet
from psco.data.reading.decode import square_image
from psco.data.reading.listing import Listing, image_names, list_classes
from psco.data.reading.pack import pack
from psco.data.reading.pickles import describe_error, read_pickle
from psco.data.reading.source import FolderSource, Source
from psco.data.sets.catalogue import data_folder, image_source, missing_files
from psco.data.sets.splits import check_enough_classes, read_csv, resolve_split
from psco.errors import InputError, and_more, quoted


def load_miniimagenet(
    split: str = "train", root: str | Path | None = None, *, size: int = 84, channels: int = 3
) -> ImageSet:
    """Load a split of miniImageNet; the first call decodes it, later calls read the cache.

    Parameters
    ----------
    split
        ``train`` (64 classes), ``val`` (16) or ``test`` (20).
    root
        The folder of the data set, or its parent; by default ``PSCO_DATA``. It contains class
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
        If files or columns are missing or damaged, or a pickle contains more than arrays.
    """
    listed = list_miniimagenet(split, root)
    if isinstance(listed, Listing):
        return pack(listed, size, channels)
    if listed.images.shape[1:] == (size, size, channels):
        return listed
    images = [square_image(Image.fromarray(image), size, channels) for image in listed.images[:]]
    return ImageSet(np.stack(images), listed.labels, listed.classes, listed.name, listed.split)


def list_miniimagenet(split: str = "train", root: str | Path | None = None) -> Listing | ImageSet:
    """List the images of a split, or read them from a pickle; errors as for loading."""
    resolved = resolve_split("miniimagenet", split, ["train", "val", "test"])
    place = data_folder("miniimagenet", root)
    pickled = place / f"mini-imagenet-cache-{resolved}.pkl"
    if pickled.is_file():
        return _from_pickle(pickled, resolved)
    source = image_source("miniimagenet", place)
    files = image_names(source)
    table = _read_table(source, place, f"{resolved}.csv")
    if table is None:
        files = [file for file in files if resolved in file.split("/")[-3:-2]]
        labels = [file.split("/")[-2] for file in files]
    else:
        files, labels = _look_up(table, files, f"{resolved}.csv", source)
    if not files:
        raise missing_files("miniimagenet", place, f"images of the split {resolved}")
    return check_enough_classes(list_classes(source, files, labels, "miniimagenet", resolved))


def _read_table(source: Source, place: Path, table: str) -> list[dict[str, str]] | None:
    """Read the table of a split at the top of the archive or folder; None if there is none."""
    for holder in (source, *([FolderSource(place)] if place.is_dir() else [])):
        if table in holder.names():
            return read_csv(holder.read(table), ["filename", "label"], f"{holder.path}/{table}")
    return None


def _look_up(
    rows: list[dict[str, str]], files: list[str], table: str, source: Source
) -> tuple[list[str], list[str]]:
    """Return file and label of each row; files are matched by name, in any folder."""
    by_name = {file.rpartition("/")[2]: file for file in files}
    missing = [row["filename"] for row in rows if row["filename"] not in by_name]
    if missing:
        raise InputError(
            f"{len(missing)} of {len(rows)} images named in {table} are missing in "
            f"{quoted(source.path)}: {and_more(missing)}; get a complete copy"
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
        raise InputError(f"{quoted(file)}: {error}") from None
    except Exception as error:  # the content can be anything
        raise InputError(
            f"{quoted(file)} must contain image_data and class_dict, or data and labels, of the "
            f"same images; it has {_keys(content)} ({describe_error(error)})"
        ) from None
    if len(classes) < 2 or "" in classes:
        raise InputError(f"{quoted(file)} has images without a class, or fewer than two classes")
    return found


def _keys(content: object) -> str:
    if not isinstance(content, dict):
        return f"a {type(content).__name__}"
    return and_more([key for key in content if isinstance(key, str)], 8) or "no keys"
