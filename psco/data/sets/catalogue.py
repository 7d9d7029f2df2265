"""The data sets of the paper: descriptions, sizes and folders."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from psco.data.reading.source import Source, open_source
from psco.errors import InputError, and_more, quoted, unknown_name

_RESEARCH = "non-commercial research only"
_ROOT_ADVICE = "set PSCO_DATA or --root (root= in Python)"


@dataclass(frozen=True)
class Benchmark:
    """The description of a data set.

    Parameters
    ----------
    title, source
        What it shows; where to get it, and its licence.
    splits
        Number of classes of each split and, where it is fixed, of images.
    files
        What its folder must contain.
    size, channels
        Default side in pixels and number of channels, 1 or 3.
    folder
        Name of its folder below ``PSCO_DATA``; by default that of the data set.
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
        "1000 classes of ImageNet (ILSVRC 2012), decoded at each access",
        f"www.image-net.org, {_RESEARCH}",
        {"train": (1000, 1_281_167), "val": (1000, 50_000)},
        "train and val, each with a folder of images for each class, such as n01440764",
        size=224,
    ),
}


def benchmark_names() -> list[str]:
    """List the data sets of the paper, in its order."""
    return list(BENCHMARKS)


def describe(name: str) -> Benchmark:
    """Return the description of a data set; InputError if the name is unknown."""
    if name not in BENCHMARKS:
        raise unknown_name("benchmark", name, BENCHMARKS)
    return BENCHMARKS[name]


def data_folder(name: str, root: str | Path | None) -> Path:
    """Return the folder of a data set, in or at ``root``, by default ``PSCO_DATA``.

    Raises
    ------
    InputError
        If neither is set, or the data set is not there.
    """
    about = describe(name)
    folder = about.folder or name
    given = root or os.environ.get("PSCO_DATA")
    if not given:
        raise InputError(
            f"the location of {name} is unknown; {_ROOT_ADVICE} to the folder that contains "
            f"{folder}/ with {about.files} (get it from {about.source})"
        )
    base = Path(given).expanduser()
    if (base / folder).exists():
        return base / folder
    # A parent folder may hold other data sets, whose images must not be mistaken for this one's.
    others = (base / (other.folder or key) for key, other in BENCHMARKS.items())
    if base.exists() and not any(place.is_dir() for place in others):
        return base
    raise missing_files(name, base, f"{folder}/")


def missing_files(name: str, place: Path, lacking: str = "") -> InputError:
    """Return the error for a folder without the files of a data set, or some of them."""
    inside = sorted(path.name for path in place.iterdir()) if place.is_dir() else []
    return InputError(
        f"no {lacking or name} in {quoted(place)}: expected {describe(name).files}; found "
        f"{and_more(inside, 8) or 'nothing'}; {_ROOT_ADVICE} to the right folder"
    )


def image_source(name: str, place: Path) -> Source:
    """Open the archive in the folder of a data set if there is one, otherwise the folder."""
    archives = list(place.glob("*.zip"))
    named = [path for path in archives if path.stem == (describe(name).folder or name)]
    chosen = named or archives
    return open_source(chosen[0] if len(chosen) == 1 else place)
