"""``psco data check`` finds what is in a folder and says what training will do with it."""

from __future__ import annotations

import json
import tarfile
import zipfile
from pathlib import Path

import pytest
from PIL import Image

from psco.errors import InputError
from psco.recipes.advice import check_images


@pytest.fixture
def folder(tmp_path) -> Path:
    """Ten images of several kinds in two classes, two of them bad, and other files."""
    for name in ("cat", "dog"):
        (tmp_path / "own" / name).mkdir(parents=True)
    cat, dog = tmp_path / "own" / "cat", tmp_path / "own" / "dog"
    noise = Image.effect_noise((300, 200), 80)
    noise.save(cat / "1.jpg")
    noise.convert("RGB").save(cat / "2.jpg")
    (cat / "copy.jpg").write_bytes((cat / "1.jpg").read_bytes())
    (dog / "copy.jpg").write_bytes((cat / "1.jpg").read_bytes())
    (cat / "cut.jpg").write_bytes((cat / "2.jpg").read_bytes()[:-2000])
    for side in (10, 150, 400):
        Image.new("RGBA", (side, 2 * side), (side % 256, 0, 0, 9)).save(dog / f"{side}.png")
    Image.new("P", (120, 120)).save(dog / "p.gif")
    (dog / "text.png").write_text("this is no image")
    (tmp_path / "own" / "notes.txt").write_text("hello")
    (dog / "film.MP4").write_bytes(b"")
    (dog / "README").write_bytes(b"")
    return tmp_path / "own"


@pytest.fixture
def check(folder):
    return check_images(folder, progress=False)


def test_everything_is_counted(check, folder):
    assert check.images == 10
    assert check.size_bytes == sum(
        f.stat().st_size for f in folder.rglob("*") if f.suffix in (".jpg", ".png", ".gif")
    )
    assert check.widths == (10, 300, 400)
    assert check.heights == (20, 200, 800)
    assert check.modes == {"L": 3, "RGBA": 3, "RGB": 1, "P": 1}
    assert check.formats == {"JPEG": 4, "PNG": 3, "GIF": 1}
    assert check.classes == {"cat": 4, "dog": 6}
    assert check.ignored == {".mp4": 1, "no extension": 1, ".txt": 1}


def test_copies_are_grouped_by_content(check):
    assert check.duplicates == (("cat/1.jpg", "cat/copy.jpg", "dog/copy.jpg"),)


def test_bad_files_are_found_with_their_reasons(check):
    assert list(check.bad) == ["cat/cut.jpg", "dog/text.png"]
    assert "truncated" in check.bad["cat/cut.jpg"]
    assert "it is not PNG" in check.bad["dog/text.png"]


def test_a_reduced_decode_also_finds_a_missing_end(tmp_path):
    Image.effect_noise((1600, 1600), 80).save(tmp_path / "whole.jpg")
    content = (tmp_path / "whole.jpg").read_bytes()
    (tmp_path / "cut.jpg").write_bytes(content[: len(content) - 5000])
    assert list(check_images(tmp_path, progress=False).bad) == ["cut.jpg"]


def test_bad_files_are_written_one_per_line(check, tmp_path):
    file = check.write_bad_files(tmp_path / "out")
    assert file == tmp_path / "out" / "bad_files.txt"
    rows = [line.split("\t") for line in file.read_text().splitlines()]
    assert [row[0] for row in rows] == ["cat/cut.jpg", "dog/text.png"]
    assert all(len(row) == 2 and row[1] for row in rows)


def test_too_many_bad_files_are_reported(check):
    assert check.advice == (
        "pretrain will stop: 2 of 10 images (20.00%) cannot be decoded, and at most 1.00% may be "
        "skipped; repair or remove them, or raise --max-bad.",
    )


def test_the_advice_says_what_training_will_do(folder):
    assert check_images(folder, max_bad=0.5, progress=False).advice == (
        "pretrain will use 8 images: the centre square of each, resized to 112 x 112 px, in RGB.",
        "It will skip 2 undecodable images.",
        "It will enlarge 1 smaller image.",
        "It will use 2 files with the same content as another file.",
        "The batch size 128 is larger than the data set, so pretrain will stop; "
        "--set train.batch_size=4 fits.",
        "Training ignores the labels (2 classes).",
    )


def test_another_recipe_changes_the_advice(tmp_path):
    for index in range(300):
        Image.new("L", (30, 30), index % 256).save(tmp_path / f"{index}.bmp")
    advice = " ".join(check_images(tmp_path, recipe="glyphs", progress=False).advice)
    assert "300 images" in advice
    assert "28 x 28 px, in grey" in advice
    assert "The batch size 256 fits: 1 batch per epoch." in advice
    assert "There are no labels, and none are needed." in advice


def test_the_findings_go_to_json_and_to_the_terminal(check):
    plain = json.loads(json.dumps(check.as_dict()))
    assert plain["images"] == 10
    assert plain["bad"] == check.bad
    lines = check.lines()
    assert "10 images" in lines[0]
    assert "width: 10 to 400 px, median 300" in lines
    assert "modes: L (3), RGBA (3), RGB (1), P (1)" in lines
    assert "2 classes: cat (4), dog (6)" in lines
    assert "same content: cat/1.jpg, cat/copy.jpg, dog/copy.jpg" in lines
    assert any(line.startswith("cannot be decoded: cat/cut.jpg: ") for line in lines)
    assert lines[-1] == check.advice[-1]
    assert not any("\n" in line for line in lines)


def test_long_lists_are_shortened_on_the_terminal(tmp_path):
    for index in range(9):
        place = tmp_path / f"class{index}"
        place.mkdir()
        (place / "bad.png").write_bytes(b"")
        for name in ("1.bmp", "2.bmp"):
            Image.new("L", (9, 9), index).save(place / name)
    check = check_images(tmp_path, progress=False)
    lines = check.lines()
    assert len(check.duplicates) == len(check.bad) == 9
    assert "same content: 4 more groups" in lines
    assert "cannot be decoded: 4 more" in lines
    assert any(line.startswith("9 classes: ") and line.endswith("and 4 more") for line in lines)


def test_a_folder_of_bad_files_has_no_sizes(tmp_path):
    (tmp_path / "a.png").write_bytes(b"")
    check = check_images(tmp_path, max_bad=1.0, progress=False)
    assert check.widths is None
    assert check.bad == {"a.png": "the file is empty"}
    assert "pretrain will stop" in check.lines()[-1]


def test_archives_and_csv_files_are_checked_too(folder, tmp_path):
    with zipfile.ZipFile(tmp_path / "own.zip", "w") as out:
        out.write(folder / "cat" / "1.jpg", "cat/1.jpg")
        out.write(folder / "dog" / "150.png", "dog/150.png")
    assert check_images(tmp_path / "own.zip", progress=False).classes == {"cat": 1, "dog": 1}
    (folder / "list.csv").write_text("path\ncat/1.jpg\n")
    assert check_images(folder / "list.csv", progress=False).images == 1


def test_no_images_and_no_folder_are_errors(tmp_path):
    with pytest.raises(InputError, match="no images in"):
        check_images(tmp_path)
    with pytest.raises(InputError, match="there is no folder"):
        check_images(tmp_path / "missing")


def test_formats_without_a_decoder_are_counted_with_what_to_install(tmp_path, monkeypatch):
    monkeypatch.setattr("psco.data.reading.decode.available_formats", lambda: ("PNG", "JPEG"))
    Image.effect_noise((90, 90), 80).save(tmp_path / "a.png")
    for name in ("b.heic", "c.heic"):
        (tmp_path / name).write_bytes(b"\0\0\0\x18ftypheic" + bytes(40))
    found = check_images(tmp_path, progress=False)
    assert "2 files: HEIC images need pillow-heif: pip install pillow-heif." in found.advice


def test_shards_are_checked_like_a_folder(tmp_path):
    with tarfile.open(tmp_path / "x-0.tar", "w") as archive:
        for name in ("a.png", "b.png"):
            Image.effect_noise((90, 120), 80).save(tmp_path / name)
            archive.add(tmp_path / name, name)
        (tmp_path / "c.png").write_bytes((tmp_path / "a.png").read_bytes()[:-900])
        archive.add(tmp_path / "c.png", "c.png")
    found = check_images(tmp_path / "x-0.tar", progress=False)
    assert (found.images, found.formats, found.ignored) == (3, {"PNG": 2}, {})
    assert found.widths == (90, 90, 90)
    (bad,) = found.bad
    assert "x-0.tar: c" in bad
