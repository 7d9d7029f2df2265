"""Seals: the hash of a file inside of the file itself, checked before anything of it is parsed.

A seal is the word ``sha256`` followed by 64 hexadecimal digits, within the first or the last 4 KiB
of a file. The digits are the hash of the whole file with zeros in their place. A file keeps its
own format: the seal is a comment, a field of its header, or an entry like any other.
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

BLANK = "0" * 64
_SEAL = re.compile(rb'sha256[": ]{1,4}([0-9a-f]{64})')
_REACH = 4096  # bytes from either end in which the seal is
_CHUNK = 1 << 20


def seal(path: Path) -> None:
    """Replace the blank digits in a file, which is not yet in its place, by its hash.

    Raises
    ------
    ValueError
        If there are no blank digits where a reader would look for them.
    """
    with path.open("rb+") as file:
        place = _place(file)
        if place is None:
            raise ValueError(f"{path} has no room for a seal")
        digits = _hash(file, place).encode()
        file.seek(place)
        file.write(digits)


def check_seal(path: Path, advice: str) -> bool:
    """Say whether a file has a seal.

    Parameters
    ----------
    path
        The file.
    advice
        What to do about a damaged file, for the message.

    Raises
    ------
    PscoError
        If it has one that does not fit its content, or cannot be read.
    """
    try:
        with path.open("rb") as file:
            place = _place(file)
            if place is None:
                return False
            file.seek(place)
            digits = file.read(len(BLANK)).decode()
            if _hash(file, place) == digits:
                return True
    except OSError as error:
        raise PscoError(f"{path} cannot be read: {error.strerror}; {advice}") from None
    raise damaged(path, "its sha256 differs", advice)


def damaged(path: Path, how: str, advice: str) -> PscoError:
    """Make the error for a file that is not as it was written."""
    return PscoError(f"{path} is damaged or cut short: {how}; {advice}")


def write_sealed(path: Path, text: str) -> None:
    """Write a text with blank digits in it, sealed, whole or not at all."""
    with atomic_path(path) as aside:
        aside.write_text(text, encoding="utf-8")
        seal(aside)


def write_facts(path: Path, facts: dict[str, Any], indent: int | None = None) -> None:
    """Write a sealed JSON object; ``facts`` says its ``format``, by which readers know it."""
    write_sealed(path, json.dumps({"sha256": BLANK, **facts}, indent=indent) + "\n")


def read_facts(path: Path, advice: str) -> tuple[dict[str, Any], bool]:
    """Read a JSON object, and say whether it has a seal.

    Parameters and errors are those of `check_seal`.
    """
    sealed = check_seal(path, advice)
    try:
        facts = json.loads(path.read_text(encoding="utf-8"))
    except (ValueError, RecursionError):
        facts = None
    if not isinstance(facts, dict):
        raise damaged(path, "it is not a JSON object", advice)
    return {name: value for name, value in facts.items() if name != "sha256"}, sealed


def hash_file(path: Path) -> str:
    """Give the sha256 of any file, as ``sha256sum`` does."""
    with path.open("rb") as file:
        return _hash(file, None)


def _place(file: BinaryIO) -> int | None:
    size = file.seek(0, 2)
    for begin in (0, max(0, size - _REACH)):
        file.seek(begin)
        if found := _SEAL.search(file.read(_REACH)):
            return begin + found.start(1)
    return None


def _hash(file: BinaryIO, place: int | None) -> str:
    digest = hashlib.sha256()
    file.seek(0)
    if place is not None:
        for chunk in _chunks(file, place):
            digest.update(chunk)
        digest.update(BLANK.encode())
        file.seek(len(BLANK), 1)
    for chunk in _chunks(file):
        digest.update(chunk)
    return digest.hexdigest()


def _chunks(file: BinaryIO, left: float = float("inf")) -> Iterator[bytes]:
    while chunk := file.read(int(min(_CHUNK, left))):
        left -= len(chunk)
        yield chunk
