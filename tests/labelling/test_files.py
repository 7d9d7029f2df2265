"""Label files and class folders: written whole, read back, merged with conflicts listed."""

from __future__ import annotations

import os

import pytest
from hypothesis import given
from hypothesis import strategies as st

from psco.data.reading.folders import list_csv
from psco.errors import InputError, PscoError
from psco.labelling.files import (
    LabelRow,
    merge_labels,
    place_files,
    read_labels,
    write_folders,
    write_labels,
)
from psco.labelling.labels import NONE_OF_THESE
from psco.labelling.store import LabelStore

NAMES = ["a.png", "b/c.png", "=1+1.png", "-x.png"]
CLASS = st.text(st.characters(categories=["L", "N", "P", "S", "Zs"]), min_size=1, max_size=8)


@pytest.fixture
def pictures(tmp_path):
    folder = tmp_path / "pictures"
    for name in NAMES:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(name)
    return folder


@pytest.mark.parametrize("place", ["pictures/labels.csv", "labels.csv", "deep/er/labels.csv"])
def test_labels_come_back_wherever_the_file_is(tmp_path, pictures, place):
    labels = dict(zip(NAMES, ["oak", "=elm", "ash", "-"], strict=True))
    path = tmp_path / place
    write_labels(path, pictures, [LabelRow(*pair) for pair in labels.items()])
    assert read_labels(path, pictures, NAMES) == labels
    listing = list_csv(path)  # as psco fit reads it
    found = [(listing.source.path / name).resolve() for name in listing.files]
    assert found == [(pictures / name).resolve() for name in NAMES]


def test_no_cell_is_a_formula(tmp_path, pictures):
    path = pictures / "labels.csv"
    write_labels(path, pictures, [LabelRow(name, "=HYPERLINK(1)") for name in NAMES])
    for line in path.read_text().splitlines():
        assert all(cell[:1] not in "=+-@" for cell in line.split(",") if cell)


@given(label=CLASS)
def test_any_name_of_a_class_survives_the_file(tmp_path_factory, label):
    folder = tmp_path_factory.mktemp("folder")
    (folder / "a.png").write_text("")
    write_labels(folder / "l.csv", folder, [LabelRow("a.png", label)])
    try:
        found = read_labels(folder / "l.csv", folder, ["a.png"])
    except InputError:  # not the name of a class
        return
    assert found == {"a.png": label.strip()}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("path,label\nz.png,oak\n", "not a picture"),
        ("path,label\n../../etc/passwd,oak\n", "not a picture"),
        ("path,label\na.png,oak\n./a.png,elm\n", "twice"),
        ("path,label\na.png,a/b\n", "slash"),
        ("path\na.png\n", "no column label"),
        ("name,label\na.png,oak\n", "columns"),
    ],
)
def test_a_table_that_cannot_be_used_is_refused(pictures, text, message):
    (pictures / "labels.csv").write_text(text)
    with pytest.raises(InputError, match=message):
        read_labels(pictures / "labels.csv", pictures, NAMES)


def test_labels_of_two_people_are_merged_and_conflicts_listed(tmp_path, pictures):
    for person, labels in {"ann": ["oak", "elm"], "bob": ["oak", "ash"]}.items():
        rows = [LabelRow(*pair) for pair in zip(NAMES, labels, strict=False)]
        if person == "bob":
            rows.append(LabelRow(NAMES[2], "fir"))
        write_labels(tmp_path / f"{person}.csv", pictures, rows)
    files = [tmp_path / "ann.csv", tmp_path / "bob.csv"]
    merged = merge_labels(files, pictures, NAMES)
    assert merged.labels == {"a.png": "oak", "=1+1.png": "fir"}
    (conflict,) = merged.conflicts
    assert conflict.picture == "b/c.png"
    assert conflict.labels == {str(files[0]): "elm", str(files[1]): "ash"}


def test_a_session_is_read_while_it_is_open(tmp_path, pictures):
    store = LabelStore(NAMES, tmp_path / "session")
    store.label([0], "oak")
    store.label([1], NONE_OF_THESE)
    found = read_labels(tmp_path / "session", pictures, NAMES)
    assert found == {"a.png": "oak", "b/c.png": NONE_OF_THESE}
    store.close()


def test_a_folder_that_is_no_session_is_refused(tmp_path, pictures):
    with pytest.raises(InputError, match="not the folder of a session"):
        read_labels(pictures, pictures, NAMES)


@pytest.mark.parametrize("how", ["copy", "link", "move"])
def test_class_folders_hold_the_pictures_by_their_names(tmp_path, pictures, how):
    write_folders(tmp_path / "out", pictures, {"a.png": "oak", "b/c.png": "elm"}, how)
    found = {p.relative_to(tmp_path / "out").as_posix() for p in (tmp_path / "out").rglob("*.png")}
    assert found == {"oak/a.png", "elm/b/c.png"}
    assert (tmp_path / "out/oak/a.png").read_text() == "a.png"
    assert (pictures / "a.png").exists() == (how != "move")
    if how == "link":
        assert (tmp_path / "out/oak/a.png").samefile(pictures / "a.png")


@pytest.mark.parametrize("how", ["copy", "link", "move"])
def test_a_failure_in_the_middle_leaves_all_as_it_was(tmp_path, pictures, how):
    labels = {"a.png": "oak", "missing.png": "elm"}
    with pytest.raises(PscoError, match="nothing was changed"):
        write_folders(tmp_path / "out", pictures, labels, how)
    assert (pictures / "a.png").read_text() == "a.png"
    assert os.listdir(tmp_path) == ["pictures"]  # noqa: PTH208


def test_folders_with_content_are_never_written_to(tmp_path, pictures):
    (tmp_path / "out").mkdir()
    place_files(tmp_path / "out", pictures, {"a.png": "a.png"})
    with pytest.raises(InputError, match="not an empty folder"):
        place_files(tmp_path / "out", pictures, {"a.png": "b.png"})
    with pytest.raises(InputError, match="copy, link, move"):
        place_files(tmp_path / "new", pictures, {"a.png": "b.png"}, "burn")
    with pytest.raises(InputError, match="label some first"):
        write_folders(tmp_path / "new", pictures, {})
