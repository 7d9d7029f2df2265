"""Checksums inside files: written in place of zeros, verified before the content is parsed."""

from __future__ import annotations

import hashlib

import pytest

from psco.errors import PscoError
from psco.files.checksums import (
    PLACEHOLDER,
    hash_file,
    read_json,
    verify_checksum,
    write_checksum,
    write_json,
)


def test_a_checksum_at_the_end_of_a_large_file_is_found_and_verified(tmp_path):
    file = tmp_path / "large"
    file.write_bytes(bytes(3_000_000) + f"sha256: {PLACEHOLDER}".encode())
    write_checksum(file)
    assert verify_checksum(file, "")
    content = bytearray(file.read_bytes())
    content[1_500_000] ^= 2
    file.write_bytes(content)
    with pytest.raises(PscoError, match="large is damaged or cut short: its sha256 differs; redo"):
        verify_checksum(file, "redo")


def test_a_file_without_a_placeholder_cannot_receive_a_checksum(tmp_path):
    (tmp_path / "plain").write_text("text")
    assert not verify_checksum(tmp_path / "plain", "")
    with pytest.raises(ValueError, match="no placeholder for a checksum"):
        write_checksum(tmp_path / "plain")


def test_json_is_read_back_without_its_checksum(tmp_path):
    write_json(tmp_path / "x.json", {"format": 3, "values": [1.5, "ä"]}, indent=2)
    assert read_json(tmp_path / "x.json", "") == ({"format": 3, "values": [1.5, "ä"]}, True)


@pytest.mark.parametrize("text", ["", "[1]", "{", "[" * 100_000])
def test_what_is_not_a_json_object_is_reported_as_damaged(tmp_path, text):
    (tmp_path / "x.json").write_text(text)
    with pytest.raises(PscoError, match=r"x.json is damaged or cut short: .*; copy it again"):
        read_json(tmp_path / "x.json", "copy it again")


def test_hash_file_is_the_plain_sha256(tmp_path):
    (tmp_path / "x").write_bytes(b"abc" * 1_000_000)
    assert hash_file(tmp_path / "x") == hashlib.sha256(b"abc" * 1_000_000).hexdigest()
