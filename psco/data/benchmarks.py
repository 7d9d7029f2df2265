"""The data sets of the paper by name: what they are, where they are, whether they are complete."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from psco.data.decode import decode_image
from psco.data.imageset import ImageSet
from psco.data.listing import Listing
from psco.data.source import Source, open_source
from psco.errors import InputError, unknown_name

_RESEARCH = "non-commercial research only"


@dataclass(frozen=True)
class Benchmark:
    """What is known about a data set.

    Parameters
    ----------
    title, source
        What it shows; where to get it and on which terms.
    splits
        For each split the number of classes and, where it is fixed, of images when complete.
    files
        What its folder must hold.
    size, channels
        Side in pixels and 1 or 3 channels, unless asked for otherwise.
    folder
        Below ``PSCO_DATA``; by default called like the data set.
    """

    title: str
    source: str
    splits: Mapping[str, tuple[int, int | None]]
    files: str = "a folder of images for each class, or one .zip of such folders"
    size: int = 84
    channels: int = 3
    folder: str = ""


BENCHMARKS: dict[str, Benchmark] = {
    "omniglot": Benchmark(
        "handwritten characters of 50 alphabets, 20 drawings each",
        "github.com/brendenlake/omniglot, MIT",
        {"train": (1028, 20_560), "val": (172, 3_440), "test": (423, 8_460)},
        "images_background and images_evaluation, both as folder or as .zip",
        size=105,
        channels=1,
    ),
    "miniimagenet": Benchmark(
        "100 classes of ImageNet, 600 images each, 84 px",
        f"cut from ImageNet, split by Ravi and Larochelle, {_RESEARCH}",
        {"train": (64, 38_400), "val": (16, 9_600), "test": (20, 12_000)},
        "class folders in train, val and test; or train.csv, val.csv and test.csv with images/ or "
        "mini_imagenet.zip; or mini-imagenet-cache-train.pkl, -val.pkl and -test.pkl",
        folder="mini_imagenet",
    ),
    "cub": Benchmark(
        "200 species of birds",
        f"www.vision.caltech.edu/datasets/cub_200_2011, {_RESEARCH}",
        {"train": (100, None), "val": (50, None), "test": (50, None)},
    ),
    "cars": Benchmark(
        "196 models of cars",
        f"Stanford Cars sorted into class folders, {_RESEARCH}",
        {"train": (98, None), "val": (49, None), "test": (49, None)},
    ),
    "places": Benchmark(
        "365 kinds of places; the first 200 images of each, as in the paper",
        f"places2.csail.mit.edu (Places365-Standard, easy format), {_RESEARCH}",
        {"train": (183, 36_600), "val": (91, 18_200), "test": (91, 18_200)},
    ),
    "plantae": Benchmark(
        "200 species of plants from iNaturalist",
        f"the Plantae of github.com/visipedia/inat_comp (2018), {_RESEARCH}",
        {"train": (100, None), "val": (50, None), "test": (50, None)},
    ),
    "cropdiseases": Benchmark(
        "leaves of crops, healthy and ill, 38 classes",
        "PlantVillage, colour images, CC BY-SA 3.0",
        {"test": (38, None)},
    ),
    "eurosat": Benchmark(
        "land use from the Sentinel-2 satellite, 10 classes",
        "github.com/phelber/EuroSAT, the RGB version, MIT",
        {"test": (10, 27_000)},
    ),
    "isic": Benchmark(
        "skin lesions under the dermatoscope, 7 classes",
        "challenge.isic-archive.com/data, task 3 of 2018, CC BY-NC 4.0",
        {"test": (7, 10_015)},
        "ISIC2018_Task3_Training_GroundTruth.csv and the .jpg files, in a folder or one .zip",
    ),
    "chestx": Benchmark(
        "chest X-rays with a single finding, 7 classes",
        "nihcc.app.box.com/v/ChestXray-NIHCC, free with attribution",
        {"test": (7, None)},
        "Data_Entry_2017.csv and the .png files in images/ or images_001/ ... images_012/",
    ),
    "imagenet": Benchmark(
        "1000 classes of ImageNet (ILSVRC 2012), decoded when they are looked at",
        f"www.image-net.org, {_RESEARCH}",
        {"train": (1000, 1_281_167), "val": (1000, 50_000)},
        "train and val, each with a folder of images for each class, such as n01440764",
        size=224,
    ),
}


class Finding(NamedTuple):
    """One result of `verify`: whether all is well, and what was found."""

    ok: bool
    text: str


def benchmark_names() -> list[str]:
    """List the data sets of the paper, in its order."""
    return list(BENCHMARKS)


def describe(name: str) -> Benchmark:
    """Tell what is known about a data set; InputError if the name is not known."""
    if name not in BENCHMARKS:
        raise unknown_name("benchmark", name, BENCHMARKS)
    return BENCHMARKS[name]


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


def data_folder(name: str, root: str | Path | None) -> Path:
    """Find a data set in or at ``root``, else ``PSCO_DATA``; InputError if it is not there."""
    about = describe(name)
    folder = about.folder or name
    given = root or os.environ.get("PSCO_DATA")
    if not given:
        raise InputError(
            f"where is {name}? set PSCO_DATA to the folder that holds {folder}/, or give root=; "
            f"expected in {folder}/: {about.files} (get it from {about.source})"
        )
    base = Path(given).expanduser()
    if (base / folder).exists():
        return base / folder
    # The folder above may hold other data sets, whose images are not to be taken for this one's.
    others = (base / (other.folder or key) for key, other in BENCHMARKS.items())
    if base.exists() and not any(place.is_dir() for place in others):
        return base
    raise missing_files(name, base, f"{folder}/")


def missing_files(name: str, place: Path, lacking: str = "") -> InputError:
    """Make the error for a place without the files of a data set, or without those ``lacking``."""
    inside = sorted(path.name for path in place.iterdir()) if place.is_dir() else []
    more = f" and {len(inside) - 8} more" if len(inside) > 8 else ""
    return InputError(
        f"no {lacking or name} in {str(place)!r}: expected {describe(name).files}; found "
        f"{', '.join(inside[:8]) or 'nothing'}{more}; set root= or PSCO_DATA to the right folder"
    )


def image_source(name: str, place: Path) -> Source:
    """Open the archive in the folder of a data set if there is one, else the folder itself."""
    archives = list(place.glob("*.zip"))
    named = [path for path in archives if path.stem == (describe(name).folder or name)]
    chosen = named or archives
    return open_source(chosen[0] if len(chosen) == 1 else place)


def _functions(name: str) -> tuple[Callable[..., ImageSet], Callable[..., ImageSet | Listing]]:
    """Give what loads a split of a data set, and what only lists it."""
    # Imported here because the modules of the data sets import this one.
    from psco.data import crossdomain, imagenet, miniimagenet, omniglot

    if name == "omniglot":
        return omniglot.load_omniglot, partial(omniglot.load_omniglot, rotations=False)
    if name == "miniimagenet":
        return miniimagenet.load_miniimagenet, miniimagenet.list_miniimagenet
    if name == "imagenet":
        return imagenet.load_imagenet, imagenet.list_imagenet
    return partial(crossdomain.load_crossdomain, name), partial(crossdomain.list_crossdomain, name)
