"""Checksums that are stored inside the file they protect, verified before anything is parsed.

A checksum is the word ``sha256`` followed by 64 hexadecimal digits, within the first or the last
4 KiB of the file. The digits are the SHA-256 of the whole file with zeros in their place. The file
keeps its format: the checksum is a comment, a header field or an ordinary entry.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO

from psco.errors import PscoError
from psco.files.atomic import atomic_path

PLACEHOLDER = "0" * 64
_CHECKSUM = re.compile(rb'sha256[": ]{1,4}([0-9a-f]{64})')
_SEARCHED = 4096  # bytes at either end of the file
_CHUNK = 1 << 20


def write_checksum(path: Path) -> None:
    """Replace the placeholder digits in a file by its checksum, in place.

    Raises
    ------
    ValueError
        If there are no placeholder digits where a reader would look for them.
    """
    with path.open("rb+") as file:
        position = _find_digits(file)
        if position is None:
            raise ValueError(f"{path} has no placeholder for a checksum")
        digits = _hash(file, position).encode()
        file.seek(position)
        file.write(digits)


def verify_checksum(path: Path, advice: str) -> bool:
    """Whether a file contains a checksum, which then matches the content.

    Parameters
    ----------
    path
        The file.
    advice
        What to do about a damaged file, for the message.

    Raises
    ------
    PscoError
        If the checksum does not match the content, or the file cannot be read.
    """
    try:
        with path.open("rb") as file:
            position = _find_digits(file)
            if position is None:
                return False
            file.seek(position)
            digits = file.read(len(PLACEHOLDER)).decode()
            if _hash(file, position) == digits:
                return True
    except OSError as error:
        raise PscoError(f"{path} cannot be read: {error.strerror}; {advice}") from None
    raise damaged(path, "its sha256 differs", advice)


def damaged(path: Path, how: str, advice: str) -> PscoError:
    """Return the error for a file whose content is not what was written."""
    return PscoError(f"{path} is damaged or cut short: {how}; {advice}")


def write_with_checksum(path: Path, text: str) -> None:
    """Write a text that contains `PLACEHOLDER`, and its checksum, atomically."""
    with atomic_path(path) as temporary:
        temporary.write_text(text, encoding="utf-8")
        write_checksum(temporary)


def write_json(path: Path, content: dict[str, Any], indent: int | None = None) -> None:
    """Write a JSON object with a checksum; its entry ``format`` tells readers the version."""
    text = json.dumps({"sha256": PLACEHOLDER, **content}, indent=indent)
    write_with_checksum(path, text + "\n")


def read_json(path: Path, advice: str) -> tuple[dict[str, Any], bool]:
    """Read a JSON object; also return whether it has a checksum.

    Parameters and errors are those of `verify_checksum`.
    """
    has_checksum = verify_checksum(path, advice)
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (ValueError, RecursionError):
        content = None
    if not isinstance(content, dict):
        raise damaged(path, "it is not a JSON object", advice)
    return {name: value for name, value in content.items() if name != "sha256"}, has_checksum


def hash_file(path: Path) -> str:
    """Return the SHA-256 of a file, as ``sha256sum`` prints it."""
    with path.open("rb") as file:
        return _hash(file, None)


def _find_digits(file: BinaryIO) -> int | None:
    size = file.seek(0, 2)
    for begin in (0, max(0, size - _SEARCHED)):
        file.seek(begin)
        if found := _CHECKSUM.search(file.read(_SEARCHED)):
            return begin + found.start(1)
    return None


def _hash(file: BinaryIO, position: int | None) -> str:
    """Hash a file; the digits at ``position`` count as zeros."""
    digest = hashlib.sha256()
    file.seek(0)
    if position is not None:
        for chunk in _chunks(file, position):
            digest.update(chunk)
        digest.update(PLACEHOLDER.encode())
        file.seek(len(PLACEHOLDER), 1)
    for chunk in _chunks(file):
        digest.update(chunk)
    return digest.hexdigest()


def _chunks(file: BinaryIO, limit: float = float("inf")) -> Iterator[bytes]:
    while chunk := file.read(int(min(_CHUNK, limit))):
        limit -= len(chunk)
        yield chunk
