"""Loading and verification of the data sets of the paper."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from psco.data.imageset import ImageSet
from psco.data.reading.decode import decode_image
from psco.data.reading.listing import Listing
from psco.data.sets import crossdomain, imagenet, miniimagenet, omniglot
from psco.data.sets.catalogue import data_folder, describe
from psco.errors import InputError, counted, quoted


class Finding(NamedTuple):
    """One result of `verify`: whether it is good, and what was found."""

    ok: bool
    text: str


def load_benchmark(
    name: str,
    split: str = "test",
    root: str | Path | None = None,
    size: int | None = None,
    channels: int | None = None,
    **options: Any,
) -> ImageSet:
    """Load a split of a data set; the first call prepares it, later calls read the cache.

    Parameters
    ----------
    name
        One of `benchmark_names`.
    split
        ``train``, ``val`` or ``test``; ``base`` and ``novel`` mean train and test. CropDiseases,
        EuroSAT, ISIC and ChestX have one split of all classes, ``test`` or ``all``.
    root
        The folder of the data set, or its parent; by default ``PSCO_DATA``.
    size, channels
        Side and channels of the images; by default those of `describe`.
    options
        Further arguments of the loader of the data set, such as ``rotations`` or ``class_list``.

    Raises
    ------
    InputError
        If the name or split is unknown, or the files are missing or damaged.
    """
    about = describe(name)
    load, _ = _functions(name)
    size = about.size if size is None else size
    channels = about.channels if channels is None else channels
    if size < 1 or channels not in (1, 3):
        raise InputError(f"size must be at least 1 and channels 1 or 3, not {size} and {channels}")
    return load(split, root, size=size, channels=channels, **options)


def verify(name: str, root: str | Path | None = None) -> list[Finding]:
    """Check that all splits of a data set are complete, and decode a few images of each.

    Problems with the files are findings; only an unknown name is an InputError.
    """
    about = describe(name)
    _, look = _functions(name)
    try:
        findings = [Finding(True, f"{name} is in {quoted(data_folder(name, root))}")]
    except InputError as error:
        return [Finding(False, str(error))]
    for split, (classes, images) in about.splits.items():
        try:
            found = look(split, root)
            if isinstance(found, Listing):
                for file in found.files[:: -(-len(found) // 20)]:  # about twenty
                    decode_image(found.source.read(file), 32, 3, name=file)
        except InputError as error:
            findings.append(Finding(False, f"{split}: {error}"))
            continue
        counts = f"{counted(len(found.classes), 'class')}, {counted(len(found), 'image')}"
        is_complete = len(found.classes) == classes and images in (None, len(found))
        wanted = f"{classes} classes" + ("" if images is None else f" and {images:,} images")
        note = "" if is_complete else f"; the complete data set has {wanted}"
        findings.append(Finding(is_complete, f"{split}: {counts}{note}"))
    return findings


def _functions(name: str) -> tuple[Callable[..., ImageSet], Callable[..., ImageSet | Listing]]:
    """Return the functions that load a split of a data set and that only list it."""
    if name == "omniglot":
        return omniglot.load_omniglot, partial(omniglot.load_omniglot, rotations=False)
    if name == "miniimagenet":
        return miniimagenet.load_miniimagenet, miniimagenet.list_miniimagenet
    if name == "imagenet":
        return imagenet.load_imagenet, imagenet.list_imagenet
    return partial(crossdomain.load_crossdomain, name), partial(crossdomain.list_crossdomain, name)
