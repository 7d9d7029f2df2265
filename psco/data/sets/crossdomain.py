"""The eight data sets on which the paper tests cross-domain transfer.

CUB, Cars, Places and Plantae have the splits of the paper: base, val and novel, here ``train``,
``val`` and ``test``. CropDiseases, EuroSAT, ISIC and ChestX are for testing only: their split
``test``, or ``all``, has all classes.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path, PurePosixPath

from psco.data.imageset import ImageSet
from psco.data.reading.listing import Listing, image_files, image_names, list_classes
from psco.data.reading.pack import pack
from psco.data.reading.source import FolderSource, Source
from psco.data.sets.catalogue import data_folder, describe, image_source, missing_files
from psco.data.sets.splits import (
    check_enough_classes,
    class_key,
    paper_splits,
    read_class_list,
    read_csv,
    resolve_split,
)
from psco.errors import InputError, and_more, counted, quoted

FIRST = {"places": 200}  # images per class that the paper uses, in the order of their names
ISIC_TABLE = "ISIC2018_Task3_Training_GroundTruth.csv"
ISIC_CLASSES = ("MEL", "NV", "BCC", "AKIEC", "BKL", "DF", "VASC")
CHESTX_TABLE = "Data_Entry_2017.csv"
CHESTX_CLASSES = (
    "Atelectasis",
    "Cardiomegaly",
    "Effusion",
    "Infiltration",
    "Mass",
    "Nodule",
    "Pneumothorax",
)

Groups = dict[str, list[str]]  # the files of each class


def load_crossdomain(
    name: str,
    split: str = "test",
    root: str | Path | None = None,
    *,
    size: int = 84,
    channels: int = 3,
    class_list: str | Path | None = None,
) -> ImageSet:
    """Load a split of a cross-domain data set; the first call decodes it, later ones use the cache.

    Parameters
    ----------
    name
        ``cub``, ``cars``, ``places``, ``plantae``, ``cropdiseases``, ``eurosat``, ``isic`` or
        ``chestx``.
    split
        ``train``, ``val`` or ``test``, also called ``base`` and ``novel``; ``test`` or ``all`` of
        the last four data sets.
    root
        The folder of the data set, its zip archive, or its parent; by default ``PSCO_DATA``.
    size
        Side in pixels: the short side is resized to it (bicubic), then the centre is cropped. For
        224 the short side is resized to 256, as usual for networks trained on ImageNet.
    channels
        1 for grey, 3 for RGB.
    class_list
        A JSON or CSV file with other classes for the split; see `read_class_list`.

    Raises
    ------
    InputError
        If files, classes or columns are missing, or there is no such split.
    """
    short = 256 if size == 224 else size
    packed = pack(list_crossdomain(name, split, root, class_list=class_list), short, channels)
    edge = (short - size) // 2
    return replace(packed, images=packed.images[:, edge : edge + size, edge : edge + size])


def list_crossdomain(
    name: str,
    split: str = "test",
    root: str | Path | None = None,
    *,
    class_list: str | Path | None = None,
) -> Listing:
    """List the images of a split; parameters and errors are those of `load_crossdomain`."""
    known = list(describe(name).splits)
    resolved = "test" if split == "all" and known == ["test"] else resolve_split(name, split, known)
    place = data_folder(name, root)
    source = image_source(name, place)
    groups = _READERS.get(name, _class_folders)(name, source, place)
    if class_list is not None:
        groups = _choose(
            groups, read_class_list(class_list, resolved), f"{name} ({resolved})", place
        )
    elif name in paper_splits():
        groups = _choose(groups, paper_splits()[name][resolved], f"{name} ({resolved})", place)
    pairs = [(file, label) for label in groups for file in groups[label][: FIRST.get(name)]]
    files, labels = [file for file, _ in pairs], [label for _, label in pairs]
    return check_enough_classes(list_classes(source, files, labels, name, resolved))


def _class_folders(name: str, source: Source, place: Path) -> Groups:
    """Group images by their folder.

    If a copy has the same classes in ``train`` and elsewhere, only ``train`` is used, as in the
    paper. The same holds for all classes of a data set without splits, where ``test`` is often a
    folder of unsorted images.
    """
    files = [PurePosixPath(file) for file in image_names(source)]
    in_folders = [file for file in files if len(file.parts) > 1]
    if not in_folders:
        raise missing_files(name, place, "images in class folders")
    train = _by_folder([file for file in in_folders if "train" in file.parts[:-2]])
    if train and name not in paper_splits():
        return train
    return _by_folder(in_folders) | train


def _by_folder(files: list[PurePosixPath]) -> Groups:
    # A copy may contain everything twice, in nested folders of the same name.
    groups: dict[str, dict[str, str]] = {}
    for file in files:
        groups.setdefault(file.parent.name, {}).setdefault(file.name, str(file))
    return {label: sorted(members.values()) for label, members in groups.items()}


def _isic(name: str, source: Source, place: Path) -> Groups:
    where = f"{place}/{ISIC_TABLE}"
    rows = read_csv(_find_table(name, source, place, ISIC_TABLE), ["image", *ISIC_CLASSES], where)
    labels = {}
    for row in rows:
        marked = [label for label in ISIC_CLASSES if row[label].strip() not in ("0.0", "0")]
        if len(marked) != 1:
            raise InputError(
                f"{quoted(row['image'])} has {counted(len(marked), 'class')}, not one, in "
                f"{quoted(where)}; get another copy"
            )
        labels[row["image"]] = marked[0]
    by_stem = {PurePosixPath(file).stem: file for file in image_files(source)}
    return _group(labels, by_stem, where)


def _chestx(name: str, source: Source, place: Path) -> Groups:
    where = f"{place}/{CHESTX_TABLE}"
    columns = ["Image Index", "Finding Labels"]
    rows = read_csv(_find_table(name, source, place, CHESTX_TABLE), columns, where)
    findings = {row["Image Index"]: row["Finding Labels"].strip() for row in rows}
    # An image with several findings, joined by "|", matches none of these names.
    labels = {image: label for image, label in findings.items() if label in CHESTX_CLASSES}
    by_name = {PurePosixPath(file).name: file for file in image_files(source)}
    return _group(labels, by_name, where)


_READERS: dict[str, Callable[[str, Source, Path], Groups]] = {"isic": _isic, "chestx": _chestx}


def _find_table(name: str, source: Source, place: Path, table: str) -> bytes:
    """Read a table that is among the images, or next to their archive."""
    sources = [source] if source.path == place else [source, FolderSource(place)]
    for holder in sources:
        for file in holder.names():
            if PurePosixPath(file).name == table:
                return holder.read(file)
    raise missing_files(name, place, table)


def _group(labels: dict[str, str], files: dict[str, str], where: str) -> Groups:
    missing = sorted(set(labels) - set(files))
    if missing:
        raise InputError(
            f"{len(missing)} of {len(labels)} images named in {quoted(where)} are missing: "
            f"{and_more(missing, 3)}; get a complete copy"
        )
    groups: Groups = {}
    for image, label in labels.items():
        groups.setdefault(label, []).append(files[image])
    return groups


def _choose(groups: Groups, wanted: list[str], what: str, place: Path) -> Groups:
    """Return the wanted classes; InputError if one is missing."""
    found = {class_key(label): label for label in groups}
    missing = [label for label in wanted if class_key(label) not in found]
    if missing:
        raise InputError(
            f"{len(missing)} of {len(wanted)} classes of {what} are missing in {quoted(place)}: "
            f"{and_more(missing, 3)}; there are {and_more(sorted(groups), 3)}; get a complete copy "
            f"(in Python, class_list= chooses other classes)"
        )
    return {label: groups[label] for label in (found[class_key(text)] for text in wanted)}
