"""The cross-domain data sets: splits, layouts, tables, and errors for damaged copies."""

from __future__ import annotations

import contextlib
import csv
import io
import json
import os
import zipfile
from collections.abc import Iterable
from pathlib import Path

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from PIL import Image

from psco.data.sets.crossdomain import (
    CHESTX_CLASSES,
    ISIC_CLASSES,
    list_crossdomain,
    load_crossdomain,
)
from psco.data.sets.splits import class_key, paper_splits
from psco.errors import InputError

EUROSAT = ["AnnualCrop", "Forest", "River"]


def picture(seed: int = 0, width: int = 24, height: int = 16) -> bytes:
    content = io.BytesIO()
    pixels = np.random.default_rng(seed).integers(0, 256, (height, width, 3), dtype=np.uint8)
    Image.fromarray(pixels).save(content, "PNG")
    return content.getvalue()


PICTURE = picture()


def write_zip(file: Path, names: Iterable[str], content: bytes = PICTURE) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    with zipfile.ZipFile(file, "w") as archive:
        for name in names:
            archive.writestr(name, content)


def write_files(folder: Path, names: Iterable[str]) -> None:
    for name in names:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(PICTURE)


def write_table(file: Path, rows: Iterable[Iterable[object]]) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    with file.open("w", newline="") as text:
        csv.writer(text).writerows(rows)


def folder_name(data: str, label: str) -> str:
    """Return the folder name of a class in copies of the data set."""
    return f"{int(label):03}.Some_bird" if data == "cub" else label.replace("/", "-")


def all_classes(data: str) -> list[str]:
    return [folder_name(data, c) for classes in paper_splits()[data].values() for c in classes]


@pytest.mark.parametrize(
    ("data", "base", "val", "novel"),
    [
        ("cub", 100, 50, 50),
        ("cars", 98, 49, 49),
        ("places", 183, 91, 91),
        ("plantae", 100, 50, 50),
    ],
)
def test_the_splits_of_the_paper_are_complete_and_disjoint(data, base, val, novel):
    splits = paper_splits()[data]
    assert [len(splits[s]) for s in ("train", "val", "test")] == [base, val, novel]
    keys = [class_key(label) for labels in splits.values() for label in labels]
    assert len(set(keys)) == len(keys)


@pytest.mark.parametrize("data", ["cub", "cars", "places", "plantae"])
@pytest.mark.parametrize(("split", "other"), [("train", "base"), ("val", "val"), ("test", "novel")])
def test_a_split_has_the_classes_of_the_paper_under_either_name(tmp_path, data, split, other):
    write_zip(tmp_path / data / f"{data}.zip", [f"x/{c}/1.png" for c in all_classes(data)])
    listing = list_crossdomain(data, split, tmp_path)
    expected = sorted(folder_name(data, label) for label in paper_splits()[data][split])
    assert list(listing.classes) == expected
    assert list_crossdomain(data, other, tmp_path).files == listing.files
    assert (listing.name, listing.split) == (data, split)


def test_test_is_the_default_split(tmp_path):
    write_zip(tmp_path / "cub.zip", [f"{c}/1.png" for c in all_classes("cub")])
    assert list_crossdomain("cub", root=tmp_path).split == "test"


def test_the_first_200_images_of_each_class_of_places_are_used(tmp_path):
    names = [f"train/{c}/00000001.jpg" for c in all_classes("places")]
    names += [f"train/alcove/{number:08}.jpg" for number in range(2, 251)]
    write_zip(tmp_path / "places.zip", names)
    listing = list_crossdomain("places", "test", tmp_path)
    assert list(np.bincount(listing.labels)) == [200] + [1] * 90
    assert listing.files[199].endswith("00000200.jpg")


def test_of_a_class_in_several_parts_only_train_is_used(tmp_path):
    classes = all_classes("cars")
    names = [f"{part}/{c}/{part}1.jpg" for c in classes for part in ("train", "test")]
    write_zip(tmp_path / "cars.zip", names)
    listing = list_crossdomain("cars", "val", tmp_path)
    assert len(listing) == 49
    assert all("/train1.jpg" in file for file in listing.files)


def test_unsorted_test_images_next_to_the_classes_are_not_a_class(tmp_path):
    names = [f"data/train/{c}/{n}.jpg" for c in ("Apple___rust", "Corn___ok") for n in range(3)]
    write_files(tmp_path, [*names, "data/test/1.jpg", "data/valid/Corn___ok/7.jpg"])
    listing = list_crossdomain("cropdiseases", "test", tmp_path)
    assert listing.classes == ("Apple___rust", "Corn___ok")
    assert len(listing) == 6


def test_images_that_are_stored_twice_are_used_once(tmp_path):
    write_files(tmp_path, [f"{top}{c}/1.jpg" for top in ("", "again/") for c in EUROSAT])
    assert len(list_crossdomain("eurosat", "test", tmp_path)) == 3


@pytest.mark.parametrize("split", ["test", "all"])
def test_data_sets_for_testing_only_have_one_split_of_all_classes(tmp_path, split):
    write_files(tmp_path / "2750", [f"{c}/{c}_{n}.png" for c in EUROSAT for n in range(4)])
    images = load_crossdomain("eurosat", split, tmp_path, size=8)
    assert images.images.shape == (12, 8, 8, 3)
    assert (images.classes, images.split) == (tuple(EUROSAT), "test")
    with pytest.raises(InputError, match=r"unknown split of eurosat 'train'.*known: test"):
        list_crossdomain("eurosat", "train", tmp_path)


def test_folder_and_archive_have_the_same_images(tmp_path):
    names = [f"{c}/{n}.png" for c in EUROSAT for n in range(2)]
    write_files(tmp_path / "a", names)
    write_zip(tmp_path / "b" / "any-name.zip", names)
    sets = [load_crossdomain("eurosat", "test", tmp_path / place, size=8) for place in "ab"]
    sets.append(load_crossdomain("eurosat", "test", tmp_path / "b" / "any-name.zip", size=8))
    for other in sets[1:]:
        assert other.classes == sets[0].classes
        np.testing.assert_array_equal(other.images, sets[0].images)


def test_224_pixels_are_the_centre_of_a_short_side_of_256(tmp_path):
    write_files(tmp_path, [f"{c}/1.png" for c in EUROSAT])
    large = load_crossdomain("eurosat", "test", tmp_path, size=256)
    centre = load_crossdomain("eurosat", "test", tmp_path, size=224)
    assert centre.images.shape == (3, 224, 224, 3)
    np.testing.assert_array_equal(centre.images, large.images[:, 16:240, 16:240])


@pytest.mark.parametrize(
    ("file", "text"),
    [
        ("classes.json", '["River", "Forest"]'),
        ("classes.json", '{"base": ["AnnualCrop"], "novel": ["River", "Forest"]}'),
        ("classes.csv", "label\nRiver\nForest\nRiver\n"),
        ("classes.csv", "split,label\ntrain,AnnualCrop\ntest,River\nnovel,Forest\n"),
    ],
)
def test_a_class_list_replaces_that_of_the_paper(tmp_path, file, text):
    write_files(tmp_path / "eurosat", [f"{c}/1.png" for c in EUROSAT])
    (tmp_path / file).write_text(text)
    listing = list_crossdomain("eurosat", "test", tmp_path, class_list=tmp_path / file)
    assert listing.classes == ("Forest", "River")


@pytest.mark.parametrize(
    ("file", "text", "words"),
    [
        ("classes.json", "[1, 2", "is not a JSON file"),
        ("classes.json", '{"test": "River"}', "list of class names"),
        ("classes.json", '{"train": ["River"]}', "has no class of the split 'test'"),
        ("classes.json", '["River", "Moon"]', "1 of 2 classes .* missing .*: 'Moon'"),
        ("classes.csv", "class\nRiver\n", "no column 'label'"),
        ("classes.csv", "", "no column 'label'"),
        ("absent.csv", None, "cannot read"),
    ],
)
def test_an_unusable_class_list_is_an_input_error(tmp_path, file, text, words):
    write_files(tmp_path / "eurosat", [f"{c}/1.png" for c in EUROSAT])
    if text is not None:
        (tmp_path / file).write_text(text)
    with pytest.raises(InputError, match=words):
        list_crossdomain("eurosat", "test", tmp_path, class_list=tmp_path / file)


def test_missing_classes_are_an_input_error_that_names_some(tmp_path):
    write_zip(tmp_path / "cub.zip", [f"{c}/1.png" for c in all_classes("cub") if c[0] == "1"])
    with pytest.raises(InputError, match=r"2\d of 50 classes of cub \(test\) are missing .*3"):
        list_crossdomain("cub", "test", tmp_path)


def isic(folder: Path, images: str = "ISIC2018_Task3_Training_Input") -> None:
    names = [f"ISIC_00{number:05}" for number in range(14)]
    write_files(folder, [f"{images}/{name}.jpg" for name in names])
    rows = [[n, *(float(k == i % 7) for k in range(7))] for i, n in enumerate(names)]
    table = "ISIC2018_Task3_Training_GroundTruth"
    write_table(folder / table / f"{table}.csv", [["image", *ISIC_CLASSES], *rows])


def test_isic_reads_one_class_for_each_image_from_its_table(tmp_path):
    isic(tmp_path)
    listing = list_crossdomain("isic", "test", tmp_path)
    assert listing.classes == tuple(sorted(ISIC_CLASSES))
    assert list(np.bincount(listing.labels)) == [2] * 7
    label = listing.labels[listing.files.index("ISIC2018_Task3_Training_Input/ISIC_0000008.jpg")]
    assert listing.classes[label] == "NV"


def test_isic_finds_its_table_next_to_an_archive(tmp_path):
    isic(tmp_path)
    files = sorted((tmp_path / "ISIC2018_Task3_Training_Input").iterdir())
    write_zip(tmp_path / "ISIC2018_Task3_Training_Input.zip", [f"in/{f.name}" for f in files])
    listing = list_crossdomain("isic", "test", tmp_path)
    assert listing.source.path.suffix == ".zip"
    assert len(listing) == 14


@pytest.mark.parametrize(
    ("header", "row", "words"),
    [
        (["image", *ISIC_CLASSES[:6]], ["ISIC_0000000", 1, 0, 0, 0, 0, 0], "no column 'VASC'"),
        (["image", *ISIC_CLASSES], ["ISIC_0000000", 1, 1, 0, 0, 0, 0, 0], "has 2 classes, not one"),
        (
            ["image", *ISIC_CLASSES],
            ["ISIC_9999999", 1, 0, 0, 0, 0, 0, 0],
            "missing: 'ISIC_9999999'",
        ),
        (["image", *ISIC_CLASSES], ["ISIC_0000000", 1, 0], "cut short"),
        (["image", *ISIC_CLASSES], ["ISIC_0000000", 1, 0, 0, 0, 0, 0, 0], "1 image of 1 class;"),
    ],
)
def test_an_unusable_table_of_isic_is_an_input_error(tmp_path, header, row, words):
    isic(tmp_path)
    table = "ISIC2018_Task3_Training_GroundTruth"
    write_table(tmp_path / table / f"{table}.csv", [header, row])
    with pytest.raises(InputError, match=words):
        list_crossdomain("isic", "test", tmp_path)


@pytest.mark.parametrize("folders", [["images"], ["images_001/images", "images_012/images"]])
def test_chestx_uses_images_with_exactly_one_of_seven_findings(tmp_path, folders):
    findings = [*CHESTX_CLASSES, *CHESTX_CLASSES, "Pneumonia", "No Finding", "Mass|Nodule", "Edema"]
    names = [f"{number:08}_000.png" for number in range(len(findings))]
    write_files(tmp_path, [f"{folders[n % len(folders)]}/{name}" for n, name in enumerate(names)])
    header = ["Image Index", "Finding Labels", "Follow-up #"]
    rows = [[name, finding, 0] for name, finding in zip(names, findings, strict=True)]
    write_table(tmp_path / "Data_Entry_2017.csv", [header, *rows])
    listing = list_crossdomain("chestx", "test", tmp_path)
    assert listing.classes == CHESTX_CLASSES
    assert list(np.bincount(listing.labels)) == [2] * 7
    assert load_crossdomain("chestx", "all", tmp_path, size=8, channels=1).channels == 1


def test_a_table_of_chestx_without_its_column_is_an_input_error(tmp_path):
    write_files(tmp_path, ["images/1.png"])
    write_table(tmp_path / "Data_Entry_2017.csv", [["Image Index", "Labels"], ["1.png", "Mass"]])
    with pytest.raises(InputError, match="no column 'Finding Labels'; it has 'Image Index', 'La"):
        list_crossdomain("chestx", "test", tmp_path)


@pytest.mark.parametrize("data", ["cub", "eurosat", "isic", "chestx"])
@pytest.mark.parametrize("wrong", ["holiday.jpg", "notes/readme.txt", None])
def test_a_wrong_root_is_an_error_with_what_was_expected_and_found(tmp_path, data, wrong):
    if wrong:
        write_files(tmp_path, [wrong])
    with pytest.raises(InputError) as caught:
        list_crossdomain(data, "test", tmp_path)
    for words in (str(tmp_path), "expected", (wrong or "nothing").split("/")[0], "PSCO_DATA"):
        assert words in str(caught.value)


def test_a_split_of_one_class_is_an_input_error(tmp_path):
    write_files(tmp_path, ["Forest/1.png", "Forest/2.png"])
    with pytest.raises(InputError, match="2 images of 1 class; tasks need two"):
        list_crossdomain("eurosat", "test", tmp_path)


def test_an_archive_cut_short_is_an_input_error(tmp_path):
    write_zip(tmp_path / "eurosat.zip", [f"{c}/1.png" for c in EUROSAT])
    file = tmp_path / "eurosat.zip"
    os.truncate(file, file.stat().st_size - 30)
    with pytest.raises(InputError, match="is not a zip archive, or is cut short"):
        load_crossdomain("eurosat", "test", tmp_path)


def damaged(content: bytes) -> st.SearchStrategy[bytes]:
    """Truncate, overwrite or extend a file at random positions."""
    places = st.integers(0, len(content))
    return st.tuples(places, places, st.binary(max_size=12)).map(
        lambda cut: content[: min(cut[:2])] + cut[2] + content[max(cut[:2]) :]
    ) | st.lists(st.tuples(st.integers(0, len(content) - 1), st.integers(0, 255)), max_size=6).map(
        lambda edits: bytes(dict(edits).get(i, byte) for i, byte in enumerate(content))
    )


def whole_zip() -> bytes:
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w", zipfile.ZIP_DEFLATED) as archive:
        for label in EUROSAT:
            archive.writestr(f"{label}/1.png", picture(width=4, height=4))
    return content.getvalue()


def nameless_zip() -> bytes:
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w") as archive:
        archive.writestr(zipfile.ZipInfo(""), b"")
    return content.getvalue()


@given(damaged(whole_zip()))
@example(nameless_zip())
@settings(max_examples=200, deadline=None)
def test_damaged_archives_raise_only_input_errors(tmp_path_factory, content):
    folder = tmp_path_factory.getbasetemp() / "damaged-zip"
    folder.mkdir(exist_ok=True)
    (folder / "eurosat.zip").write_bytes(content)
    with contextlib.suppress(InputError):
        listing = list_crossdomain("eurosat", "test", folder)
        for file in listing.files:
            listing.source.read(file)


@given(damaged(b'Image Index,Finding Labels\n1.png,Mass\n"2.png",Nodule\n') | st.binary())
@settings(max_examples=150, deadline=None)
def test_damaged_tables_raise_only_input_errors(tmp_path_factory, content):
    folder = tmp_path_factory.getbasetemp() / "damaged-chestx"
    write_files(folder, ["images/1.png", "images/2.png"])
    (folder / "Data_Entry_2017.csv").write_bytes(content)
    with contextlib.suppress(InputError):
        list_crossdomain("chestx", "test", folder)


@given(damaged(json.dumps({"base": ["Forest"], "novel": ["River", "Forest"]}).encode()))
@settings(max_examples=100, deadline=None)
def test_damaged_class_lists_raise_only_input_errors(tmp_path_factory, content):
    folder = tmp_path_factory.getbasetemp() / "damaged-list"
    write_files(folder / "eurosat", [f"{c}/1.png" for c in EUROSAT])
    (folder / "classes.json").write_bytes(content)
    with contextlib.suppress(InputError):
        list_crossdomain("eurosat", "test", folder, class_list=folder / "classes.json")


@pytest.mark.parametrize(
    ("data", "classes", "least"), [("eurosat", 10, 200), ("cropdiseases", 38, 150)]
)
def test_the_real_data_have_their_classes_and_decode(data, classes, least):
    root = Path(os.environ.get("PSCO_DATA", ""))
    if "PSCO_DATA" not in os.environ or not (root / data).is_dir():
        pytest.skip(f"needs {data}: set PSCO_DATA to the folder that holds {data}/")
    images = load_crossdomain(data, "test", root, size=16)
    counts = np.bincount(images.labels)
    assert (len(images.classes), len(counts)) == (classes, classes)
    assert counts.min() >= least
    assert images.images.shape == (len(images), 16, 16, 3)
    assert images.images[:500].std() > 10
