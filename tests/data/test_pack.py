"""Packed images: decoded once, cached atomically, packed again when anything changes."""

from __future__ import annotations

import errno
import io
import os
import subprocess
import sys
import textwrap
import time
import zipfile
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from psco.data.reading import pack as pack_module
from psco.data.reading.folders import list_folder, list_paths
from psco.data.reading.pack import pack
from psco.data.reading.undecodable import write_bad_files
from psco.errors import InputError, PscoError


@pytest.fixture(autouse=True)
def packed(tmp_path, monkeypatch) -> Path:
    """Set up a separate cache for each test."""
    monkeypatch.setenv("PSCO_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache" / "packed"


@pytest.fixture
def folder(tmp_path) -> Path:
    """Return a folder of 12 grey images in 3 classes; image i has the value 10 * i."""
    for index in range(12):
        place = tmp_path / "own" / f"class{index // 4}" / f"{index:02}.png"
        place.parent.mkdir(parents=True, exist_ok=True)
        Image.new("L", (20, 24), 10 * index).save(place)
    return tmp_path / "own"


@pytest.fixture
def decodes(monkeypatch) -> list[str]:
    """Return a list to which the name of every decoded file is added."""
    names: list[str] = []
    decode = pack_module.decode_image

    def recorded(content: bytes, size: int, channels: int, *, name: str) -> np.ndarray:
        names.append(name)
        return decode(content, size, channels, name=name)

    monkeypatch.setattr(pack_module, "decode_image", recorded)
    return names


def values(images) -> list[int]:
    return images.images[:, 0, 0, 0].tolist()


def test_all_files_are_decoded_in_order(folder):
    images = pack(list_folder(folder), 8, 1)
    assert images.images.shape == (12, 8, 8, 1)
    assert images.images.dtype == np.uint8
    assert values(images) == [10 * i for i in range(12)]
    assert images.labels.tolist() == [0] * 4 + [1] * 4 + [2] * 4
    assert images.classes == ("class0", "class1", "class2")
    assert images.name == "own"
    assert images.files[5] == "class1/05.png"
    assert images.bad_files == {}


def test_more_files_than_are_processed_at_once_keep_their_order(tmp_path):
    many = tmp_path / "many"
    many.mkdir()
    number = 30 * (os.cpu_count() or 1)
    for index in range(number):
        Image.new("L", (4, 4), index % 256).save(many / f"{index:05}.bmp")
    assert values(pack(list_folder(many), 4, 1)) == [i % 256 for i in range(number)]


def test_the_images_are_memory_mapped_copy_on_write(folder):
    images = pack(list_folder(folder), 8, 1)
    assert isinstance(images.images, np.memmap)
    torch.from_numpy(images.images)[:] = 7
    assert values(pack(list_folder(folder), 8, 1))[1] == 10


def test_an_unchanged_folder_is_not_decoded_again(folder, decodes):
    first = pack(list_folder(folder), 8, 3)
    assert len(decodes) == 12
    second = pack(list_folder(folder), 8, 3)
    assert len(decodes) == 12
    np.testing.assert_array_equal(first.images, second.images)
    assert second.labels.tolist() == first.labels.tolist()


def test_another_size_or_number_of_channels_is_packed_separately(folder, decodes):
    assert pack(list_folder(folder), 8, 3).images.shape == (12, 8, 8, 3)
    assert pack(list_folder(folder), 8, 1).images.shape == (12, 8, 8, 1)
    assert pack(list_folder(folder), 9, 3).images.shape == (12, 9, 9, 3)
    assert len(decodes) == 36


def test_a_changed_folder_is_packed_again(folder, decodes):
    pack(list_folder(folder), 8, 1)
    Image.new("L", (9, 9), 200).save(folder / "class0" / "00.png")
    assert values(pack(list_folder(folder), 8, 1))[0] == 200
    (folder / "class2" / "11.png").unlink()
    assert len(pack(list_folder(folder), 8, 1)) == 11
    Image.new("L", (9, 9), 201).save(folder / "class2" / "12.png")
    assert values(pack(list_folder(folder), 8, 1))[-1] == 201
    assert len(decodes) == 12 + 12 + 11 + 12


def test_a_rewritten_file_is_noticed_by_its_time(folder):
    file = folder / "class0" / "00.bmp"
    Image.new("L", (9, 9), 1).save(file)
    before = file.stat()
    assert values(pack(list_folder(folder), 8, 1))[0] == 1
    Image.new("L", (9, 9), 2).save(file)
    os.utime(file, ns=(before.st_atime_ns, before.st_mtime_ns + 1))
    assert values(pack(list_folder(folder), 8, 1))[0] == 2


def test_an_archive_is_packed_like_its_folder(folder, tmp_path):
    archive = tmp_path / "own.zip"
    with zipfile.ZipFile(archive, "w") as out:
        for file in sorted(folder.rglob("*.png")):
            out.write(file, file.relative_to(folder))
    from_zip, from_folder = (pack(list_folder(path), 8, 3) for path in (archive, folder))
    np.testing.assert_array_equal(from_zip.images, from_folder.images)
    np.testing.assert_array_equal(from_zip.labels, from_folder.labels)


def test_the_same_file_may_be_listed_twice(folder):
    file = folder / "class0" / "01.png"
    assert values(pack(list_paths([file, folder / "class1" / "04.png", file]), 8, 1)) == [
        10,
        40,
        10,
    ]


def test_too_many_undecodable_files_are_an_error_with_the_first_name(folder, packed):
    (folder / "class1" / "05.png").write_text("not an image")
    with pytest.raises(
        InputError,
        match=r"1 of 12 images in '.*own' \(8\.33%\) cannot be decoded, and 1\.00% are allowed; "
        r"the first is 'class1/05\.png': it is not PNG.*; repair or remove them, or raise --max-b",
    ) as caught:
        pack(list_folder(folder), 8, 1)
    assert "\n" not in str(caught.value)
    assert not packed.exists()


def test_a_small_fraction_of_undecodable_files_is_skipped_with_a_warning(folder, capsys, tmp_path):
    (folder / "class1" / "05.png").write_text("not an image")
    for _ in ("decoded", "from the cache"):
        images = pack(list_folder(folder), 8, 1, max_bad=0.1)
        warning = capsys.readouterr().err
        assert "1 of 12 images cannot be decoded and is skipped: 'class1/05.png'" in warning
        assert values(images) == [10 * i for i in range(12) if i != 5]
        assert images.labels.tolist() == [0] * 4 + [1] * 3 + [2] * 4
        assert len(images.files) == 11
        assert "class1/05.png" not in images.files
        assert list(images.bad_files) == ["class1/05.png"]
    text = write_bad_files(images.bad_files, tmp_path).read_text()
    assert text.startswith("class1/05.png\tit is not PNG")


def test_the_limit_also_applies_to_cached_images(folder):
    (folder / "class1" / "05.png").write_bytes(b"")
    pack(list_folder(folder), 8, 1, max_bad=0.5)
    with pytest.raises(InputError, match="1 of 12"):
        pack(list_folder(folder), 8, 1)


def test_the_warning_names_five_files_at_most(folder, capsys):
    for index in range(7):
        (folder / f"class{index // 4}" / f"{index:02}.png").write_bytes(b"")
    pack(list_folder(folder), 8, 1, max_bad=0.9, progress=False)
    warning = capsys.readouterr().err
    assert warning.count(".png") == 5
    assert "and 2 more" in warning
    assert warning.count("\n") == 1


def test_only_undecodable_files_are_an_error_whatever_is_allowed(tmp_path):
    (tmp_path / "own").mkdir()
    (tmp_path / "own" / "a.png").write_bytes(b"")
    with pytest.raises(
        InputError,
        match=r"no image in .* can be decoded; of 1 file, the first is 'a",
    ):
        pack(list_folder(tmp_path / "own"), 8, 1, max_bad=1.0)


@pytest.mark.parametrize("fraction", [-0.1, 1.5, float("nan")])
def test_a_fraction_outside_0_to_1_is_refused(folder, fraction):
    with pytest.raises(InputError, match=r"max_bad must be a fraction in \[0, 1\]"):
        pack(list_folder(folder), 8, 1, max_bad=fraction)


def test_a_damaged_member_of_an_archive_is_an_undecodable_file(tmp_path):
    archive = tmp_path / "own.zip"
    picture = io.BytesIO()
    Image.new("L", (30, 30), 5).save(picture, "BMP")
    with zipfile.ZipFile(archive, "w") as out:
        for name in ("a.bmp", "b.bmp"):
            out.writestr(name, picture.getvalue())
    content = bytearray(archive.read_bytes())
    content[200] ^= 255  # a pixel of the first, so that its checksum is wrong
    archive.write_bytes(content)
    images = pack(list_folder(archive), 8, 1, max_bad=0.5)
    assert images.files == ("b.bmp",)
    assert "damaged" in images.bad_files["a.bmp"]


def test_a_full_disk_is_an_error_and_leaves_the_old_cache(folder, packed, monkeypatch, decodes):
    pack(list_folder(folder), 8, 1)
    old = {file.name: file.read_bytes() for file in packed.iterdir()}
    Image.new("L", (9, 9), 200).save(folder / "class0" / "00.png")

    class FullDisk(io.FileIO):
        written = 0

        def write(self, content):
            self.written += memoryview(content).nbytes
            if self.written > 400:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            return super().write(content)

    real_open = Path.open

    def open_on_full_disk(path: Path, mode: str = "r", *rest: object, **options: object):
        return FullDisk(path, mode) if mode == "wb" else real_open(path, mode, *rest, **options)

    monkeypatch.setattr(Path, "open", open_on_full_disk)
    with pytest.raises(PscoError, match=r"cannot write packed images to .*No space left") as caught:
        pack(list_folder(folder), 8, 1)
    assert not isinstance(caught.value, InputError)
    assert "\n" not in str(caught.value)
    assert {file.name: file.read_bytes() for file in packed.iterdir()} == old


def test_too_little_space_is_noticed_before_any_work(folder, monkeypatch, decodes):
    usage = type("Usage", (), {"free": 100})
    monkeypatch.setattr(pack_module.shutil, "disk_usage", lambda _: usage)
    with pytest.raises(PscoError, match="MB are free; free some space there, or set PSCO_CACHE"):
        pack(list_folder(folder), 8, 1)
    assert decodes == []


def test_a_cache_that_cannot_be_created_is_a_one_line_error(folder, tmp_path, monkeypatch):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("PSCO_CACHE", str(tmp_path / "file"))
    with pytest.raises(PscoError, match="cannot write packed images"):
        pack(list_folder(folder), 8, 1)


@pytest.mark.parametrize("ending", [".npy", ".json"])
@pytest.mark.parametrize("damage", [b"", b"garbage", None])
def test_a_damaged_cache_is_rebuilt(folder, packed, decodes, ending, damage):
    pack(list_folder(folder), 8, 1)
    (file,) = packed.glob(f"*{ending}")
    if damage is None:
        file.write_bytes(file.read_bytes()[:-1])
    else:
        file.write_bytes(damage)
    assert values(pack(list_folder(folder), 8, 1)) == [10 * i for i in range(12)]
    assert len(decodes) == 24


def test_a_killed_process_leaves_nothing_that_looks_complete(folder, packed, decodes):
    script = f"""
        import time
        from pathlib import Path
        import psco.data.reading.pack as module
        from psco.data.reading.folders import list_folder
        decode = module.decode_image
        def slow(content, size, channels, *, name):
            if name.endswith("09.png"):
                print("in the middle", flush=True)
                time.sleep(60)
            return decode(content, size, channels, name=name)
        module.decode_image = slow
        module.pack(list_folder(Path({str(folder)!r})), 8, 1)
    """
    process = subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(script)], stdout=subprocess.PIPE, text=True
    )
    assert process.stdout.readline() == "in the middle\n"
    process.kill()
    process.communicate(timeout=20)
    assert {file.suffix for file in packed.iterdir()} == {".npy", ".lock"}  # a temporary file
    assert values(pack(list_folder(folder), 8, 1)) == [10 * i for i in range(12)]
    assert len(decodes) == 12


def test_temporary_files_of_dead_writers_are_removed_and_fresh_ones_kept(folder, packed):
    packed.mkdir(parents=True)
    dead, alive = packed / ".dead.1.part.npy", packed / ".alive.2.part.npy"
    dead.write_bytes(b"")
    alive.write_bytes(b"")
    os.utime(dead, (time.time() - 7200,) * 2)
    pack(list_folder(folder), 8, 1)
    assert alive.exists()
    assert not dead.exists()


def test_the_images_are_renamed_last(folder, packed, monkeypatch):
    order = []
    replace = Path.replace
    monkeypatch.setattr(
        Path, "replace", lambda old, new: order.append(new.suffix) or replace(old, new)
    )
    pack(list_folder(folder), 8, 1)
    assert order == [".json", ".npy"]


def test_a_listing_without_files_is_refused(folder):
    listing = list_folder(folder)
    with pytest.raises(InputError, match="no images"):
        pack(type(listing)(listing.source, ()), 8, 1)


def test_a_file_that_vanishes_is_a_one_line_error(folder):
    listing = list_paths([folder / "class0" / "00.png"])
    (folder / "class0" / "00.png").unlink()
    with pytest.raises(InputError, match="No such file"):
        pack(listing, 8, 1)
