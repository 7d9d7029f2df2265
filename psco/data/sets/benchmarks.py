"""Load and verify the data sets of the paper by name."""

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
from psco.errors import InputError


class Finding(NamedTuple):
    """One result of `verify`: whether all is well, and what was found."""

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
    """Load a split of a data set, prepared at the first call and read from the cache afterwards.

    Parameters
    ----------
    name
        One of `benchmark_names`.
    split
        ``train``, ``val`` or ``test``; ``base`` and ``novel`` mean train and test. CropDiseases,
        EuroSAT, ISIC and ChestX have one split of all classes, ``test`` or ``all``.
    root
        The folder of the data set or the one above it; by default ``PSCO_DATA``.
    size, channels
        Of the images; by default those of `describe`.
    options
        Further arguments of the data set's own loader, such as ``rotations`` or ``class_list``.

    Raises
    ------
    InputError
        If the name or split is not known, or the files are missing or damaged.
    """
    about = describe(name)
    load, _ = _functions(name)
    size = about.size if size is None else size
    channels = about.channels if channels is None else channels
    if size < 1 or channels not in (1, 3):
        raise InputError(f"size must be at least 1 and channels 1 or 3, not {size} and {channels}")
    return load(split, root, size=size, channels=channels, **options)


def verify(name: str, root: str | Path | None = None) -> list[Finding]:
    """Check that all splits of a data set are there and complete; decode a few images of each.

    Whatever is wrong with the files is a finding; only a wrong name is an InputError.
    """
    about = describe(name)
    _, look = _functions(name)
    try:
        findings = [Finding(True, f"{name} is in {str(data_folder(name, root))!r}")]
    except InputError as error:
        return [Finding(False, str(error))]
    for split, (classes, images) in about.splits.items():
        try:
            found = look(split, root)
            if isinstance(found, Listing):
                for file in found.files[:: -(-len(found) // 20)]:  # some twenty
                    decode_image(found.source.read(file), 32, 3, name=file)
        except InputError as error:
            findings.append(Finding(False, f"{split}: {error}"))
            continue
        text = f"{split}: {len(found.classes)} classes, {len(found):,} images"
        whole = len(found.classes) == classes and images in (None, len(found))
        complete = f"{classes} classes" if images is None else f"{classes} and {images:,}"
        findings.append(Finding(whole, text if whole else f"{text}; complete it has {complete}"))
    return findings


def _functions(name: str) -> tuple[Callable[..., ImageSet], Callable[..., ImageSet | Listing]]:
    """Return what loads a split of a data set, and what only lists it."""
    if name == "omniglot":
        return omniglot.load_omniglot, partial(omniglot.load_omniglot, rotations=False)
    if name == "miniimagenet":
        return miniimagenet.load_miniimagenet, miniimagenet.list_miniimagenet
    if name == "imagenet":
        return imagenet.load_imagenet, imagenet.list_imagenet
    return partial(crossdomain.load_crossdomain, name), partial(crossdomain.list_crossdomain, name)
