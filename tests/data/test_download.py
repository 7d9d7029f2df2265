"""Downloads arrive whole and verified, or say what to do; archives are unpacked without harm."""

from __future__ import annotations

import errno
import hashlib
import os
import stat
import threading
import zipfile
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import numpy as np
import pytest

from psco.data.reading import download as download_module
from psco.data.reading.archive import extract
from psco.data.reading.download import download
from psco.errors import InputError, PscoError

CONTENT = np.random.default_rng(0).bytes(300_000)
SHA256 = hashlib.sha256(CONTENT).hexdigest()
MD5 = hashlib.md5(CONTENT).hexdigest()


class Server(ThreadingHTTPServer):
    """Serves CONTENT by the rules that the first part of the path names."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.requests: list[tuple[str, str | None]] = []

    def url(self, rule: str) -> str:
        return f"http://127.0.0.1:{self.server_port}/{rule}/data.bin"


class Handler(BaseHTTPRequestHandler):
    timeout = 10

    def log_message(self, *_: object) -> None:
        pass

    def do_GET(self) -> None:
        rule = self.path.split("/")[1]
        wanted = self.headers.get("Range")
        self.server.requests.append((rule, wanted))
        if rule == "missing":
            self.send_error(404)
            return
        content = CONTENT[::-1] if rule == "wrong" else CONTENT
        start = int(wanted[6:-1]) if wanted and rule != "no-range" else 0
        if start >= len(content):
            self.send_error(416)
            return
        self.send_response(206 if start else 200)
        if start:
            given = start - 1 if rule == "other-range" else start
            self.send_header("Content-Range", f"bytes {given}-{len(content) - 1}/{len(content)}")
        if rule != "no-length":
            self.send_header("Content-Length", str(len(content) - start))
        self.end_headers()
        # One that dies midway gives 100 000 bytes at a time, or none at all the second time.
        share = {"dies": 100_000, "dies-forever": max(0, 100_000 - start)}.get(rule, len(content))
        self.wfile.write(content[start : start + share])


@pytest.fixture
def server(monkeypatch) -> Iterator[Server]:
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    with Server() as served:
        thread = threading.Thread(target=served.serve_forever, args=(0.02,), daemon=True)
        thread.start()
        yield served
        served.shutdown()
        thread.join(5)


@pytest.fixture
def target(tmp_path) -> Path:
    return tmp_path / "data" / "data.bin"


def ranges(server: Server) -> list[str | None]:
    return [wanted for _, wanted in server.requests]


def test_a_file_arrives_and_is_verified(server, target):
    assert download(server.url("good"), target, sha256=SHA256, md5=MD5.upper()) == target
    assert target.read_bytes() == CONTENT
    assert [file.name for file in target.parent.iterdir()] == ["data.bin"]


def test_a_file_that_is_there_is_not_fetched_again(server, target):
    target.parent.mkdir()
    target.write_bytes(CONTENT)
    download(server.url("good"), target, sha256=SHA256)
    assert server.requests == []


def test_another_file_at_the_target_is_left_alone_and_named(server, target):
    target.parent.mkdir()
    target.write_bytes(b"mine")
    with pytest.raises(InputError, match=r"data\.bin' is another file or damaged \(its sha256 is"):
        download(server.url("good"), target, sha256=SHA256)
    assert target.read_bytes() == b"mine"


def test_a_partial_download_is_resumed(server, target):
    target.parent.mkdir()
    target.with_name("data.bin.partial").write_bytes(CONTENT[:123_456])
    download(server.url("good"), target, sha256=SHA256)
    assert target.read_bytes() == CONTENT
    assert ranges(server) == ["bytes=123456-"]


def test_a_server_that_dies_midway_is_asked_for_the_rest(server, target):
    download(server.url("dies"), target, sha256=SHA256)
    assert target.read_bytes() == CONTENT
    assert ranges(server) == [None, "bytes=100000-", "bytes=200000-"]


def test_what_has_arrived_is_kept_for_the_next_call_and_for_other_mirrors(server, target):
    with pytest.raises(PscoError, match="the connection broke after 100000 of 300000 bytes"):
        download(server.url("dies-forever"), target, sha256=SHA256)
    assert not target.exists()
    assert target.with_name("data.bin.partial").stat().st_size == 100_000
    download([server.url("dies-forever"), server.url("good")], target, sha256=SHA256)
    assert target.read_bytes() == CONTENT
    assert server.requests[-1] == ("good", "bytes=100000-")


def test_a_server_without_ranges_starts_over(server, target):
    target.parent.mkdir()
    target.with_name("data.bin.partial").write_bytes(CONTENT[:1000])
    download(server.url("no-range"), target, sha256=SHA256)
    assert target.read_bytes() == CONTENT
    assert ranges(server) == ["bytes=1000-"]


@pytest.mark.parametrize("rule", ["good", "other-range"])
@pytest.mark.parametrize("length", [1000, 300_000, 400_000])
def test_a_wrong_beginning_is_thrown_away(server, target, rule, length):
    target.parent.mkdir()
    target.with_name("data.bin.partial").write_bytes(bytes(length))
    download(server.url(rule), target, sha256=SHA256)
    assert target.read_bytes() == CONTENT
    assert ranges(server)[-1] is None


def test_a_partial_file_that_is_complete_is_good(server, target):
    target.parent.mkdir()
    target.with_name("data.bin.partial").write_bytes(CONTENT)
    download(server.url("good"), target, sha256=SHA256)
    assert target.read_bytes() == CONTENT


def test_a_length_that_is_not_told_does_not_matter(server, target):
    download(server.url("no-length"), target, sha256=SHA256)
    assert target.read_bytes() == CONTENT


def test_mirrors_are_tried_in_turn(server, target):
    rules = ["missing", "wrong", "good"]
    download([server.url(rule) for rule in rules], target, md5=MD5)
    assert target.read_bytes() == CONTENT
    assert [rule for rule, _ in server.requests] == rules


def test_a_wrong_content_never_reaches_the_target(server, target):
    with pytest.raises(PscoError, match=f"its sha256 is .*, expected {SHA256}"):
        download(server.url("wrong"), target, sha256=SHA256)
    assert list(target.parent.iterdir()) == []


def test_without_a_network_the_error_says_what_to_put_where(target):
    url = "http://127.0.0.1:9/data.bin"
    with pytest.raises(PscoError) as caught:
        download(url, target, sha256=SHA256, progress=False)
    text = str(caught.value)
    assert not isinstance(caught.value, InputError)
    assert f"{url}: no connection" in text
    assert f"put it at {str(target)!r}, sha256 {SHA256}" in text
    assert "\n" not in text


def test_addresses_that_are_none_are_refused(target, tmp_path):
    for url in (f"file://{tmp_path}", "data.bin", "ftp://127.0.0.1/x"):
        with pytest.raises(InputError, match="no address to download from"):
            download(url, target)
    with pytest.raises(PscoError, match="no connection"):
        download("http://[broken", target)


def test_a_full_disk_is_one_line(server, target, monkeypatch):
    def full(*_: object, **__: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(download_module.Path, "open", full)
    with pytest.raises(PscoError, match=r"cannot write '.*partial': No space left on device$"):
        download(server.url("good"), target)


# Archives


def zipped(path: Path, members: dict[str | zipfile.ZipInfo, bytes]) -> Path:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as out:
        for name, content in members.items():
            out.writestr(name, content)
    return path


def unpack(archive: Path, target: Path) -> Path:
    return extract(archive, target, max_bytes=10_000, max_files=5)


def test_an_archive_is_unpacked(tmp_path):
    archive = zipped(tmp_path / "a.zip", {"x/1.txt": b"one", "x/y/2.txt": b"two", "z/": b""})
    out = unpack(archive, tmp_path / "out")
    assert (out / "x" / "1.txt").read_bytes() == b"one"
    assert (out / "x" / "y" / "2.txt").read_bytes() == b"two"
    assert sorted(file.name for file in tmp_path.iterdir()) == ["a.zip", "out"]


def link() -> zipfile.ZipInfo:
    info = zipfile.ZipInfo("link")
    info.external_attr = (stat.S_IFLNK | 0o777) << 16
    return info


@pytest.mark.parametrize(
    ("members", "message"),
    [
        ({"../evil": b""}, "leads out"),
        ({"a/../../evil": b""}, "leads out"),
        ({"/etc/evil": b""}, "leads out"),
        ({"..\\evil": b""}, "leads out"),
        ({"C:evil": b""}, "leads out"),
        ({zipfile.ZipInfo(""): b""}, "holds a file without a name"),
        ({link(): b"/etc/passwd"}, "'link', which is a link"),
        ({"bomb": bytes(10_001)}, "2 files of 10001 bytes together; at most 5 files and 10000 by"),
        ({f"{i}": bytes(2600) for i in range(4)}, "5 files of 10400 bytes together"),
        ({f"{i}": b"" for i in range(5)}, "holds 6 files"),
    ],
)
def test_harmful_archives_are_refused_as_a_whole(tmp_path, members, message):
    archive = zipped(tmp_path / "a.zip", {"good.txt": b"", **members})
    with pytest.raises(InputError, match=message):
        unpack(archive, tmp_path / "out")
    assert [file.name for file in tmp_path.iterdir()] == ["a.zip"]


def test_an_archive_that_lies_about_a_size_gives_no_more_than_it_says(tmp_path):
    archive = zipped(tmp_path / "a.zip", {"bomb": bytes(1_000_000)})
    content = archive.read_bytes()
    table = content.index(b"PK\1\2")
    size = table + 24  # of the unpacked file, in the table of contents
    archive.write_bytes(content[:size] + (100).to_bytes(4, "little") + content[size + 4 :])
    with pytest.raises(InputError, match="cannot unpack"):
        unpack(archive, tmp_path / "out")
    assert [file.name for file in tmp_path.iterdir()] == ["a.zip"]


def test_damaged_archives_are_refused(tmp_path):
    archive = zipped(tmp_path / "a.zip", {"x": CONTENT[:5000]})
    content = archive.read_bytes()
    for damaged in (b"", b"text", content[:-30], content[:99] + b"?" + content[100:]):
        archive.write_bytes(damaged)
        with pytest.raises(InputError, match=r"cannot unpack '.*a\.zip'"):
            unpack(archive, tmp_path / "out")
    assert [file.name for file in tmp_path.iterdir()] == ["a.zip"]


def test_names_that_collide_are_one_line(tmp_path):
    archive = zipped(tmp_path / "a.zip", {"a": b"file", "a/b": b"in a folder of the same name"})
    with pytest.raises(PscoError, match="cannot unpack"):
        unpack(archive, tmp_path / "out")
    assert [file.name for file in tmp_path.iterdir()] == ["a.zip"]


def test_a_folder_with_something_in_it_is_left_alone(tmp_path):
    archive = zipped(tmp_path / "a.zip", {"x": b""})
    (tmp_path / "out").mkdir()
    assert (unpack(archive, tmp_path / "out") / "x").exists()
    with pytest.raises(InputError, match="exists already"):
        unpack(archive, tmp_path / "out")
