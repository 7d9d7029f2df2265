"""Folders and archives from other people: nothing hangs, repeats, leaks in or fills the memory."""

from __future__ import annotations

import io
import os
import socket
import tarfile
import zipfile
from pathlib import Path

import pytest
from PIL import Image

from psco.data import load_dataset
from psco.data.reading.folders import list_folder, list_images, list_paths
from psco.data.reading.limits import Limits, current_limits
from psco.data.reading.source import FolderSource, ZipSource
from psco.data.reading.tarindex import index_shard
from psco.data.reading.walk import read_regular, scan_folder
from psco.errors import InputError

pytestmark = pytest.mark.skipif(os.name != "posix", reason="needs links and pipes")


def png(value: int = 100) -> bytes:
    content = io.BytesIO()
    Image.new("L", (12, 10), value).save(content, "PNG")
    return content.getvalue()


@pytest.fixture
def folder(tmp_path, monkeypatch) -> Path:
    """Return a folder with two images; ``tmp_path / 'outside'`` has a third."""
    monkeypatch.setenv("PSCO_CACHE", str(tmp_path / "cache"))
    for name in ("images/cat/1.png", "images/dog/1.png", "outside/secret.png"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_bytes(png())
    return tmp_path / "images"


# ------------------------------------------------------------------------------- special files


def test_pipes_sockets_and_devices_are_skipped_with_a_warning(folder, capsys):
    os.mkfifo(folder / "cat" / "pipe.png")
    (folder / "cat" / "zero.png").symlink_to("/dev/zero")
    with socket.socket(socket.AF_UNIX) as listener:
        here = os.open(".", os.O_RDONLY)
        os.chdir(folder / "dog")  # the path of a socket must be short
        listener.bind("s.png")
        os.fchdir(here)
        os.close(here)
        assert list_folder(folder).files == ("cat/1.png", "dog/1.png")
    warning = capsys.readouterr().err
    assert "(and 2 more) is skipped" in warning
    names, skipped = scan_folder(folder, follow_links=True)
    assert names == ["cat/1.png", "dog/1.png"]
    assert skipped == {
        "cat/pipe.png": "is a named pipe",
        "cat/zero.png": "links to a device",
        "dog/s.png": "is a socket",
    }


@pytest.mark.parametrize("kind", ["pipe", "device", "folder"])
def test_only_regular_files_are_opened(tmp_path, kind):
    file = tmp_path / "x.png"
    if kind == "pipe":
        os.mkfifo(file)
    elif kind == "device":
        file.symlink_to("/dev/zero")
    else:
        file.mkdir()
    with pytest.raises(InputError, match=r"cannot read '.*x\.png': it is a .*not a regular file"):
        read_regular(file, 1000)
    with pytest.raises(InputError, match=r"names '.*x\.png': no such file"):
        list_paths([file])


def test_a_table_that_is_a_pipe_does_not_block(tmp_path):
    os.mkfifo(tmp_path / "images.csv")
    with pytest.raises(InputError, match="it is a named pipe"):
        list_images(tmp_path / "images.csv")


# ---------------------------------------------------------------------------------------- links


def test_links_to_parents_and_to_siblings_repeat_nothing(folder):
    (folder / "cat" / "loop").symlink_to(folder)
    (folder / "cat" / "up").symlink_to("..")
    (folder / "dog" / "cats").symlink_to("../cat")
    (folder / "dog" / "copy.png").symlink_to("../cat/1.png")
    (folder / "self.png").symlink_to("self.png")
    assert scan_folder(folder).names == ["cat/1.png", "dog/1.png", "self.png"]


def test_links_into_a_hidden_store_of_the_folder_are_followed(folder):
    """git-annex and DVC keep the content of files in such a store."""
    (folder / ".store" / "deep").mkdir(parents=True)
    (folder / ".store" / "a").write_bytes(png())
    (folder / ".store" / "deep" / "b.png").write_bytes(png())
    (folder / "cat" / "2.png").symlink_to("../.store/a")
    (folder / "cow").symlink_to(".store/deep")
    assert scan_folder(folder).names == ["cat/1.png", "cat/2.png", "cow/b.png", "dog/1.png"]


def test_links_to_the_outside_are_listed_and_skipped_unless_allowed(folder, monkeypatch, capsys):
    (folder / "cat" / "2.png").symlink_to(folder.parent / "outside" / "secret.png")
    (folder / "cow").symlink_to("../outside")
    assert list_folder(folder).files == ("cat/1.png", "dog/1.png")
    warning = capsys.readouterr().err
    assert "'cat/2.png' (and 1 more) is skipped: it links to '/" in warning
    assert "outside the folder; set PSCO_FOLLOW_LINKS=1 to follow links" in warning
    monkeypatch.setenv("PSCO_FOLLOW_LINKS", "1")
    assert list_folder(folder).files == ("cat/1.png", "cow/secret.png", "dog/1.png")  # once


def test_the_folder_itself_may_be_a_link(folder, tmp_path):
    (tmp_path / "link").symlink_to(folder)
    assert list_folder(tmp_path / "link").files == ("cat/1.png", "dog/1.png")


def test_a_dangling_link_is_an_undecodable_file(folder):
    (folder / "cat" / "gone.png").symlink_to("nowhere.png")
    with pytest.raises(InputError, match=r"1 of 3 images .*gone\.png.*No such file"):
        load_dataset(folder, size=8, progress=False)


# --------------------------------------------------------------------------------------- limits


def test_large_files_are_refused_before_they_are_read(folder, monkeypatch):
    with (folder / "cat" / "1.png").open("wb") as sparse:
        sparse.truncate(4 << 30)
    with pytest.raises(InputError, match=r"its 4,295 MB exceed the limit of 500 MB; set PSCO_MAX"):
        FolderSource(folder).read("cat/1.png")
    monkeypatch.setenv("PSCO_MAX_FILE_MB", "1")
    (folder / "cat" / "1.png").write_bytes(bytes(1_000_001))
    with pytest.raises(InputError, match="exceed the limit of 1 MB"):
        FolderSource(folder).read("cat/1.png")


def test_a_file_that_grows_while_it_is_read_is_still_limited():
    with pytest.raises(InputError, match="exceed"):
        read_regular(Path("/proc/self/status"), 100)  # its size is given as 0


def test_a_zip_member_that_unpacks_to_gigabytes_is_refused(tmp_path, monkeypatch):
    monkeypatch.setenv("PSCO_MAX_FILE_MB", "2")
    with zipfile.ZipFile(tmp_path / "x.zip", "w", zipfile.ZIP_DEFLATED) as out:
        out.writestr("bomb.png", bytes(3_000_000))
        out.writestr("good.png", png())
    source = ZipSource(tmp_path / "x.zip")
    with pytest.raises(InputError, match=r"'bomb.png' in .*its 3 MB exceed the limit of 2 MB"):
        source.read("bomb.png")
    assert source.read("good.png") == png()


def test_a_zip_member_cannot_be_larger_than_its_header_states(tmp_path):
    with zipfile.ZipFile(tmp_path / "x.zip", "w", zipfile.ZIP_DEFLATED) as out:
        out.writestr("bomb.png", bytes(3_000_000))
    content = (tmp_path / "x.zip").read_bytes()
    real, stated = (size.to_bytes(4, "little") for size in (3_000_000, 1000))
    (tmp_path / "x.zip").write_bytes(content.replace(real, stated))
    with pytest.raises(InputError, match=r"'bomb\.png' in .* is damaged"):
        ZipSource(tmp_path / "x.zip").read("bomb.png")


def test_a_large_member_of_a_shard_is_left_out(tmp_path, monkeypatch):
    monkeypatch.setenv("PSCO_CACHE", str(tmp_path / "cache"))
    with tarfile.open(tmp_path / "x.tar", "w") as archive:
        for name, content in {"a.png": png(), "b.png": png() + bytes(2_000_000)}.items():
            about = tarfile.TarInfo(name)
            about.size = len(content)
            archive.addfile(about, io.BytesIO(content))
    assert index_shard(tmp_path / "x.tar").names == ["a.png", "b.png"]
    monkeypatch.setenv("PSCO_MAX_FILE_MB", "1")
    index = index_shard(tmp_path / "x.tar")
    assert index.names == ["a.png"]
    assert index.bad.keys() == {"b.png"}


def test_a_raised_limit_is_noticed_although_the_images_are_cached(folder, monkeypatch):
    (folder / "dog" / "1.png").write_bytes(png() + bytes(1_500_000))
    monkeypatch.setenv("PSCO_MAX_FILE_MB", "1")
    assert len(load_dataset(folder, size=8, max_bad=0.5, progress=False)) == 1
    monkeypatch.delenv("PSCO_MAX_FILE_MB")
    assert len(load_dataset(folder, size=8, max_bad=0.5, progress=False)) == 2


@pytest.mark.parametrize("name", ["PSCO_MAX_FILE_MB", "PSCO_MAX_PIXELS", "PSCO_FOLLOW_LINKS"])
@pytest.mark.parametrize("value", ["-1", "many", "1.5", "²"])
def test_a_limit_that_is_not_a_number_is_refused(folder, monkeypatch, name, value):
    monkeypatch.setenv(name, value)
    with pytest.raises(InputError, match=f"^{name} must be"):
        list_folder(folder)


def test_limits_are_the_defaults_unless_set(monkeypatch):
    assert current_limits() == Limits()
    monkeypatch.setenv("PSCO_MAX_FILE_MB", "")
    assert current_limits() == Limits()


# ---------------------------------------------------------------------------------------- names


@pytest.mark.parametrize("name", ["../x.png", "a/../../x.png", "/x.png", "..\\x.png", "C:/x.png"])
def test_names_that_lead_out_of_an_archive_are_refused(tmp_path, name):
    with zipfile.ZipFile(tmp_path / "x.zip", "w") as out:
        out.writestr(name, png())
    with pytest.raises(InputError, match=r"is unsafe: the name .* leads outside of it"):
        list_folder(tmp_path / "x.zip")


def test_escape_sequences_in_file_names_reach_no_terminal(folder, capsys):
    hostile = "\x1b]0;owned\x07\x1b[2J\n.png"
    (folder / "cat" / hostile).write_bytes(b"not an image")
    images = load_dataset(folder, size=8, max_bad=0.5, progress=True)
    assert list(images.bad_files) == [f"cat/{hostile}"]
    with pytest.raises(InputError) as caught:
        load_dataset(folder, size=8, max_bad=0, progress=True)
    assert str(caught.value).isprintable()
    assert r"\x1b]0;owned" in str(caught.value)
    assert all(line.isprintable() for line in capsys.readouterr().err.splitlines())


def test_the_check_of_a_folder_prints_no_escape_sequences(folder, psco):
    (folder / "cat" / "\x1b]0;owned\x07.png").write_bytes(b"not an image")
    done = psco("data", "check", folder, "--out", folder.parent)
    assert done.returncode == 1
    assert r"\x1b]0;owned\x07.png" in done.stdout
    assert all(line.isprintable() for line in (done.stdout + done.stderr).splitlines())
    assert "\x1b" not in (folder.parent / "bad_files.txt").read_text()
