"""miniImageNet in every layout; pickles are read without running code."""

from __future__ import annotations

import collections
import contextlib
import csv
import io
import os
import pickle
import subprocess
import zipfile
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from psco.data.reading import pickles as stand_ins
from psco.data.reading.listing import Listing
from psco.data.reading.pack import pack
from psco.data.reading.pickles import read_pickle
from psco.data.sets.miniimagenet import list_miniimagenet, load_miniimagenet
from psco.errors import InputError

SPLITS = {"train": ["n01", "n02", "n03"], "val": ["n04", "n05"], "test": ["n06", "n07"]}
PER_CLASS = 3


def colour(name: str, number: int) -> tuple[int, int, int]:
    return 30 * int(name[1:]), 60 * number, 100


def picture(name: str, number: int) -> bytes:
    content = io.BytesIO()
    Image.new("RGB", (84, 84), colour(name, number)).save(content, "PNG")
    return content.getvalue()


def pictures(split: str) -> list[tuple[str, str, bytes]]:
    """Return class, file name and content of every image of a split."""
    return [
        (name, f"{name}{number:08}.png", picture(name, number))
        for name in SPLITS[split]
        for number in range(PER_CLASS)
    ]


def write_tables(folder: Path) -> None:
    for split in SPLITS:
        with (folder / f"{split}.csv").open("w", newline="") as file:
            table = csv.writer(file)
            table.writerow(["filename", "label"])
            table.writerows([file, name] for name, file, _ in pictures(split))


def class_folders(folder: Path) -> None:
    for split in SPLITS:
        for name, file, content in pictures(split):
            path = folder / split / name / file
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content)


def flat_folder_with_tables(folder: Path) -> None:
    (folder / "images").mkdir()
    for split in SPLITS:
        for _, file, content in pictures(split):
            (folder / "images" / file).write_bytes(content)
    write_tables(folder)


def archive_with_tables(folder: Path) -> None:
    with zipfile.ZipFile(folder / "mini_imagenet.zip", "w") as archive:
        for split in SPLITS:
            for name, file, content in pictures(split):
                archive.writestr(f"{name}/{file}", content)
    write_tables(folder)


def archive_of_splits(folder: Path) -> None:
    with zipfile.ZipFile(folder / "anything.zip", "w") as archive:
        for split in SPLITS:
            for name, file, content in pictures(split):
                archive.writestr(f"mini/{split}/{name}/{file}", content)


def arrays(split: str) -> tuple[np.ndarray, dict[str, list[int]]]:
    images = np.empty((PER_CLASS * len(SPLITS[split]), 84, 84, 3), np.uint8)
    images[:] = [
        np.broadcast_to(np.uint8(colour(name, number)), (84, 84, 3))
        for name in SPLITS[split]
        for number in range(PER_CLASS)
    ]
    members = np.arange(len(images)).reshape(-1, PER_CLASS).tolist()
    return images, dict(zip(SPLITS[split], members, strict=True))


def pickles(folder: Path, protocol: int = 4) -> None:
    for split in SPLITS:
        images, classes = arrays(split)
        content = pickle.dumps({"image_data": images, "class_dict": classes}, protocol)
        (folder / f"mini-imagenet-cache-{split}.pkl").write_bytes(content)


LAYOUTS = [
    class_folders,
    flat_folder_with_tables,
    archive_with_tables,
    archive_of_splits,
    pickles,
]


@pytest.mark.parametrize("write", LAYOUTS)
@pytest.mark.parametrize("split", SPLITS)
def test_every_layout_has_the_same_images(tmp_path, write, split):
    write(tmp_path)
    images = load_miniimagenet(split, tmp_path)
    expected, _ = arrays(split)
    assert images.classes == tuple(SPLITS[split])
    np.testing.assert_array_equal(images.labels, np.repeat(range(len(SPLITS[split])), PER_CLASS))
    np.testing.assert_array_equal(images.images, expected)
    assert (images.name, images.split) == ("miniimagenet", split)


@pytest.mark.parametrize("write", [class_folders, pickles])
def test_files_and_pickles_are_resized_and_converted_to_grey(tmp_path, write):
    write(tmp_path)
    images = load_miniimagenet("val", tmp_path, size=20, channels=1)
    assert images.images.shape == (2 * PER_CLASS, 20, 20, 1)
    red, green, blue = colour("n04", 0)
    grey = 0.299 * red + 0.587 * green + 0.114 * blue
    assert abs(float(images.images[0].mean()) - grey) < 1


def test_the_root_may_be_the_parent_folder(tmp_path, monkeypatch):
    (tmp_path / "mini_imagenet").mkdir()
    class_folders(tmp_path / "mini_imagenet")
    assert len(load_miniimagenet("val", tmp_path)) == 2 * PER_CLASS
    monkeypatch.setenv("PSCO_DATA", str(tmp_path))
    assert len(load_miniimagenet("val")) == 2 * PER_CLASS


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
def test_pickles_of_any_protocol_are_read(tmp_path, protocol):
    pickles(tmp_path, protocol)
    images = load_miniimagenet("test", tmp_path)
    np.testing.assert_array_equal(images.images, arrays("test")[0])
    assert images.images.flags.writeable


@pytest.mark.parametrize("labels", [[7, 7, 9, 9], np.array([7, 7, 9, 9]), list("aabb")])
@pytest.mark.parametrize("protocol", [2, 5])
def test_pickles_with_data_and_labels_are_read(tmp_path, labels, protocol):
    labels = list(labels) if protocol == 5 else labels  # a list of the numbers of numpy, too
    content = {"data": np.arange(4 * 84 * 84 * 3).reshape(4, 84, 84, 3).astype(np.uint8)}
    file = tmp_path / "mini-imagenet-cache-val.pkl"
    file.write_bytes(pickle.dumps(collections.OrderedDict(content, labels=labels), protocol))
    images = load_miniimagenet("val", tmp_path)
    np.testing.assert_array_equal(images.labels, [0, 0, 1, 1])
    assert images.classes == tuple(sorted({str(label) for label in labels}))


def python2_pickle(images: np.ndarray, classes: dict[str, list[int]]) -> bytes:
    """Write as ``cPickle.dump(..., 2)`` of Python 2, which has no type for bytes."""

    def text(value: bytes) -> bytes:
        return b"T" + len(value).to_bytes(4, "little") + value

    shape = b"(" + b"".join(b"J" + n.to_bytes(4, "little") for n in images.shape) + b"t"
    dtype = b"cnumpy\ndtype\n(" + text(b"u1") + b"K\x00K\x01tR(K\x03" + text(b"|")
    dtype += b"NNNJ\xff\xff\xff\xffJ\xff\xff\xff\xffK\x00tb"
    array = b"cnumpy.core.multiarray\n_reconstruct\n(cnumpy\nndarray\n(K\x00t" + text(b"b") + b"tR"
    array += b"(K\x01" + shape + dtype + b"\x89" + text(images.tobytes()) + b"tb"
    members = b"".join(
        text(name.encode()) + b"(" + b"".join(b"K" + bytes([n]) for n in numbers) + b"l"
        for name, numbers in classes.items()
    )
    return (
        b"\x80\x02}(" + text(b"image_data") + array + text(b"class_dict") + b"}(" + members + b"uu."
    )


def test_pickles_written_by_python_2_are_read(tmp_path):
    file = tmp_path / "mini-imagenet-cache-val.pkl"
    file.write_bytes(python2_pickle(*arrays("val")))
    images = load_miniimagenet("val", tmp_path)
    np.testing.assert_array_equal(images.images, arrays("val")[0])
    assert images.classes == ("n04", "n05")


class Calls:
    """An object that is pickled as a function call."""

    def __init__(self, function: object, *arguments: object) -> None:
        self.call = function, arguments

    def __reduce__(self) -> tuple[object, tuple[object, ...]]:
        return self.call


@pytest.mark.parametrize(
    ("function", "name"),
    [
        (os.system, "system"),
        (subprocess.Popen, "subprocess.Popen"),
        (eval, "eval"),
        (getattr, "getattr"),
        (np.load, "numpy.*load"),
        (Path, "pathlib"),
    ],
)
def test_a_pickle_with_code_is_refused_by_name_and_not_run(tmp_path, function, name):
    images, classes = arrays("val")
    harm = Calls(function, f"touch {tmp_path / 'harmed'}")
    content = {"image_data": images, "class_dict": classes, "extra": harm}
    (tmp_path / "mini-imagenet-cache-val.pkl").write_bytes(pickle.dumps(content))
    with pytest.raises(InputError, match=f"names '.*{name}.*may run code"):
        load_miniimagenet("val", tmp_path)
    assert not (tmp_path / "harmed").exists()


def test_a_pickle_cannot_change_how_later_ones_are_read(tmp_path):
    # BUILD with a pair sets attributes of the object on the stack: here the stand-in's defaults.
    attack = b"\x80\x02c_codecs\nencode\n(N}X\x0c\x00\x00\x00__defaults__(K\x01K\x02tstb."
    (tmp_path / "attack.pkl").write_bytes(attack)
    assert read_pickle(tmp_path / "attack.pkl").__defaults__ == (1, 2)
    assert stand_ins._STAND_INS["_codecs.encode"].__defaults__ is None


def test_references_out_of_a_pickle_are_refused(tmp_path):
    file = tmp_path / "persistent.pkl"
    file.write_bytes(b"\x80\x02X\x05\x00\x00\x00thereQ.")
    with pytest.raises(InputError, match="refers to 'there'"):
        read_pickle(file)


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ({"image_data": np.zeros((4, 84, 84, 3), np.uint8)}, "'image_data'"),
        ({"data": np.zeros((4, 84, 84), np.uint8), "labels": [0, 0, 1, 1]}, "shape"),
        ({"data": np.zeros((4, 84, 84, 3), np.float32), "labels": [0, 0, 1, 1]}, "uint8"),
        ({"data": np.zeros((4, 84, 84, 3), np.uint8), "labels": [0, 1]}, "labels of 4 images"),
        ({"data": np.zeros((2, 84, 84, 3), np.uint8), "labels": [0, 0]}, "two classes"),
        ({"image_data": np.zeros((2, 8, 8, 3), np.uint8), "class_dict": {"a": [0, 9]}}, "IndexErr"),
        ({"image_data": np.zeros((2, 8, 8, 3), np.uint8), "class_dict": {"a": [0]}}, "without a"),
        ({"data": np.array([{}, None]), "labels": [0, 1]}, "type 'O8'"),
        ([1, 2], "list"),
    ],
)
def test_a_pickle_with_other_content_is_an_input_error(tmp_path, content, words):
    (tmp_path / "mini-imagenet-cache-val.pkl").write_bytes(pickle.dumps(content))
    with pytest.raises(InputError, match=words):
        load_miniimagenet("val", tmp_path)


def damaged(content: bytes) -> st.SearchStrategy[bytes]:
    """Truncate, overwrite or extend a file at random positions."""
    places = st.integers(0, len(content))
    return st.tuples(places, places, st.binary(max_size=12)).map(
        lambda cut: content[: min(cut[:2])] + cut[2] + content[max(cut[:2]) :]
    ) | st.lists(st.tuples(st.integers(0, len(content) - 1), st.integers(0, 255)), max_size=8).map(
        lambda edits: bytes(dict(edits).get(i, byte) for i, byte in enumerate(content))
    )


small = {"image_data": np.zeros((4, 2, 2, 3), np.uint8), "class_dict": {"a": [0, 1], "b": [2, 3]}}
whole_pickles = [pickle.dumps(small, protocol) for protocol in (0, 2, 4, 5)]


@given(st.one_of([damaged(content) for content in whole_pickles]) | st.binary())
@settings(max_examples=300, deadline=None)
def test_damaged_pickles_raise_only_input_errors(tmp_path_factory, content):
    folder = tmp_path_factory.getbasetemp() / "damaged-pickle"
    folder.mkdir(exist_ok=True)
    (folder / "mini-imagenet-cache-val.pkl").write_bytes(content)
    with contextlib.suppress(InputError):
        list_miniimagenet("val", folder)


@given(damaged(b'filename,label\nn0400000000.png,n04\n"n0500000000.png",n05\n') | st.binary())
@settings(max_examples=150, deadline=None)
def test_damaged_tables_raise_only_input_errors(tmp_path_factory, content):
    folder = tmp_path_factory.getbasetemp() / "damaged-table"
    if not folder.exists():
        folder.mkdir()
        flat_folder_with_tables(folder)
    (folder / "val.csv").write_bytes(content)
    with contextlib.suppress(InputError):
        list_miniimagenet("val", folder)


def test_a_table_without_its_column_is_an_input_error(tmp_path):
    flat_folder_with_tables(tmp_path)
    (tmp_path / "val.csv").write_text("file,label\na.png,n04\n")
    with pytest.raises(InputError, match=r"no column 'filename'; it has 'file', 'label'"):
        load_miniimagenet("val", tmp_path)


def test_a_table_cut_short_is_an_input_error(tmp_path):
    flat_folder_with_tables(tmp_path)
    (tmp_path / "val.csv").write_text("filename,label\nn0400000000.png,n04\nn05")
    with pytest.raises(InputError, match=r"row 3 .* cut short"):
        load_miniimagenet("val", tmp_path)


def test_images_named_in_the_table_but_missing_are_an_input_error(tmp_path):
    flat_folder_with_tables(tmp_path)
    (tmp_path / "images" / "n0400000001.png").unlink()
    with pytest.raises(InputError, match=r"1 of 6 images .*: 'n0400000001.png'"):
        load_miniimagenet("val", tmp_path)


def test_a_split_of_one_class_is_an_input_error(tmp_path):
    flat_folder_with_tables(tmp_path)
    (tmp_path / "val.csv").write_text("filename,label\nn0400000000.png,n04\n")
    with pytest.raises(InputError, match="1 image of 1 class;"):
        load_miniimagenet("val", tmp_path)


def test_an_unknown_split_is_an_input_error(tmp_path):
    with pytest.raises(InputError, match="did you mean 'val'"):
        load_miniimagenet("vall", tmp_path)


def test_a_folder_without_the_data_set_is_an_error_with_what_was_expected(tmp_path):
    (tmp_path / "holiday.jpg").touch()
    with pytest.raises(InputError) as caught:
        load_miniimagenet("val", tmp_path)
    for words in ("train.csv", "mini_imagenet.zip", "cache-train.pkl", "holiday.jpg", "PSCO_DATA"):
        assert words in str(caught.value)


def test_the_real_data_are_complete_and_decode():
    root = Path(os.environ.get("PSCO_DATA", ""))
    if "PSCO_DATA" not in os.environ or not (root / "mini_imagenet").is_dir():
        pytest.skip("needs miniImageNet: set PSCO_DATA to the folder that holds mini_imagenet/")
    names: set[str] = set()
    for split, classes in (("train", 64), ("test", 20), ("val", 16)):
        listing = list_miniimagenet(split, root)
        np.testing.assert_array_equal(np.bincount(listing.labels), np.full(classes, 600))
        assert not names & set(listing.classes)
        names |= set(listing.classes)
    assert isinstance(listing, Listing)
    first = replace(listing, files=listing.files[:256], labels=listing.labels[:256])
    images = pack(first, 84, 3, progress=False)
    assert images.images.shape == (256, 84, 84, 3)
    assert images.images.std() > 30
