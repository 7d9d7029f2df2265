"""Downloads are complete and verified or explain what to do; hostile archives are refused."""

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
    """Serves CONTENT in the way that the first part of the path names."""

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
        if rule.startswith("to-"):
            self.send_response(302)
            self.send_header("Location", f"{rule[3:]}://127.0.0.1:{self.server.server_port}/good/x")
            self.end_headers()
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
        # One that dies midway sends 100 000 bytes at a time, or none at all the second time.
        sent = {"dies": 100_000, "dies-forever": max(0, 100_000 - start)}.get(rule, len(content))
        self.wfile.write(content[start : start + sent])


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


def test_an_existing_file_is_not_downloaded_again(server, target):
    target.parent.mkdir()
    target.write_bytes(CONTENT)
    download(server.url("good"), target, sha256=SHA256)
    assert server.requests == []


def test_another_file_at_the_target_is_an_error_and_kept(server, target):
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


def test_the_rest_is_requested_after_a_broken_connection(server, target):
    download(server.url("dies"), target, sha256=SHA256)
    assert target.read_bytes() == CONTENT
    assert ranges(server) == [None, "bytes=100000-", "bytes=200000-"]


def test_received_data_are_kept_for_the_next_call_and_for_other_mirrors(server, target):
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
def test_a_wrong_beginning_is_discarded(server, target, rule, length):
    target.parent.mkdir()
    target.with_name("data.bin.partial").write_bytes(bytes(length))
    download(server.url(rule), target, sha256=SHA256)
    assert target.read_bytes() == CONTENT
    assert ranges(server)[-1] is None


def test_a_complete_partial_file_is_used(server, target):
    target.parent.mkdir()
    target.with_name("data.bin.partial").write_bytes(CONTENT)
    download(server.url("good"), target, sha256=SHA256)
    assert target.read_bytes() == CONTENT


def test_the_length_of_the_file_need_not_be_known(server, target):
    download(server.url("no-length"), target, sha256=SHA256)
    assert target.read_bytes() == CONTENT


def test_mirrors_are_tried_in_turn(server, target):
    rules = ["missing", "wrong", "good"]
    download([server.url(rule) for rule in rules], target, md5=MD5)
    assert target.read_bytes() == CONTENT
    assert [rule for rule, _ in server.requests] == rules


def test_wrong_content_never_reaches_the_target(server, target):
    with pytest.raises(PscoError, match=f"its sha256 is .*, expected {SHA256}"):
        download(server.url("wrong"), target, sha256=SHA256)
    assert list(target.parent.iterdir()) == []


def test_without_a_network_the_error_says_which_file_to_put_where(target):
    url = "http://127.0.0.1:9/data.bin"
    with pytest.raises(PscoError) as caught:
        download(url, target, sha256=SHA256, progress=False)
    text = str(caught.value)
    assert not isinstance(caught.value, InputError)
    assert f"{url}: no connection" in text
    assert f"put it at {str(target)!r}, sha256 {SHA256}" in text
    assert "\n" not in text


def test_only_http_addresses_are_accepted(target, tmp_path):
    for url in (f"file://{tmp_path}", "data.bin", "ftp://127.0.0.1/x"):
        with pytest.raises(InputError, match="is not an http:// or https:// address"):
            download(url, target)
    with pytest.raises(PscoError, match="no connection"):
        download("http://[broken", target)


def test_a_full_disk_is_a_one_line_error(server, target, monkeypatch):
    def full(*_: object, **__: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(download_module.os, "open", full)
    with pytest.raises(PscoError, match=r"cannot write '.*partial': No space left on device$"):
        download(server.url("good"), target)


# Hostile servers and folders


def test_redirects_are_followed_to_http_and_nowhere_else(server, target):
    download(server.url("to-http"), target, sha256=SHA256)
    assert target.read_bytes() == CONTENT
    for scheme in ("ftp", "file", "FTP"):
        with pytest.raises(PscoError, match=r"redirects to .*not http|is not allowed"):
            download(server.url(f"to-{scheme}"), target.with_name("other"), progress=False)


@pytest.mark.parametrize("rule", ["good", "no-length"])
def test_a_file_above_the_limit_is_refused_before_it_is_complete(server, target, rule):
    with pytest.raises(PscoError, match="the file is larger than 200,000 bytes"):
        download(server.url(rule), target, max_bytes=200_000, progress=False)
    assert list(target.parent.iterdir()) == []
    download(server.url(rule), target, max_bytes=300_000, progress=False)


@pytest.mark.skipif(os.name != "posix", reason="needs links")
@pytest.mark.parametrize("kind", ["symbolic", "dangling", "hard"])
def test_nothing_is_written_through_a_link(server, target, tmp_path, kind):
    target.parent.mkdir()
    precious, partial = tmp_path / "precious", target.with_name("data.bin.partial")
    if kind != "dangling":
        precious.write_bytes(b"mine")
    partial.hardlink_to(precious) if kind == "hard" else partial.symlink_to(precious)
    with pytest.raises(InputError, match=r"partial' is a link or belongs to another user; remove"):
        download(server.url("good"), target, progress=False)
    assert not precious.exists() if kind == "dangling" else precious.read_bytes() == b"mine"
    assert server.requests == []


@pytest.mark.skipif(os.name != "posix" or os.geteuid() != 0, reason="needs to be root")
def test_the_partial_file_of_another_user_is_not_continued(server, target):
    target.parent.mkdir()
    partial = target.with_name("data.bin.partial")
    partial.write_bytes(CONTENT[:10])
    os.chown(partial, 12345, 12345)
    with pytest.raises(InputError, match="belongs to another user"):
        download(server.url("good"), target, progress=False)


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
        ({"../evil": b""}, "leads outside"),
        ({"a/../../evil": b""}, "leads outside"),
        ({"/etc/evil": b""}, "leads outside"),
        ({"..\\evil": b""}, "leads outside"),
        ({"C:evil": b""}, "leads outside"),
        ({zipfile.ZipInfo(""): b""}, "it has a file without a name"),
        ({link(): b"/etc/passwd"}, "'link' is a link"),
        ({"bomb": bytes(10_001)}, "2 files and 10,001 bytes; the limits are 5 files and 10,000"),
        ({f"{i}": bytes(2600) for i in range(4)}, "5 files and 10,400 bytes"),
        ({f"{i}": b"" for i in range(5)}, "6 files"),
    ],
)
def test_hostile_archives_are_refused_as_a_whole(tmp_path, members, message):
    archive = zipped(tmp_path / "a.zip", {"good.txt": b"", **members})
    with pytest.raises(InputError, match=message):
        unpack(archive, tmp_path / "out")
    assert [file.name for file in tmp_path.iterdir()] == ["a.zip"]


def test_a_member_larger_than_its_header_states_is_refused(tmp_path):
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


def test_names_that_collide_are_a_one_line_error(tmp_path):
    archive = zipped(tmp_path / "a.zip", {"a": b"file", "a/b": b"in a folder of the same name"})
    with pytest.raises(PscoError, match="cannot unpack"):
        unpack(archive, tmp_path / "out")
    assert [file.name for file in tmp_path.iterdir()] == ["a.zip"]


def test_a_folder_that_is_not_empty_is_left_alone(tmp_path):
    archive = zipped(tmp_path / "a.zip", {"x": b""})
    (tmp_path / "out").mkdir()
    assert (unpack(archive, tmp_path / "out") / "x").exists()
    with pytest.raises(InputError, match="exists already"):
        unpack(archive, tmp_path / "out")
