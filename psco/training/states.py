"""Files that hold what a run continues from, written by torch with a checksum inside."""

from __future__ import annotations

import zipfile
from pathlib import Path
from typing import Any

import torch

from psco.errors import first_line
from psco.files.atomic import atomic_path
from psco.files.checksums import PLACEHOLDER, damaged, verify_checksum, write_checksum
from psco.files.disk import system_errors


def write_state(path: Path, content: dict[str, Any]) -> None:
    """Write tensors, numbers, strings, lists and dicts, atomically; ``format`` is their version.

    Raises
    ------
    OSError
        If the file cannot be written, for lack of space for example; the previous one stays.
    """
    with atomic_path(path) as temporary:
        with system_errors(), temporary.open("wb") as file:
            torch.save(content, file)
        # The checksum is the zip comment, which torch and other readers ignore.
        with zipfile.ZipFile(temporary, "a") as archive:
            about = f"psco resume, format {content['format']}, sha256: {PLACEHOLDER}"
            archive.comment = about.encode()
        write_checksum(temporary)


def read_state(path: Path, advice: str) -> tuple[dict[str, Any], bool]:
    """Return what `write_state` wrote, and whether it has a checksum; executes no code.

    Parameters and errors are those of `verify_checksum`.
    """
    has_checksum = verify_checksum(path, advice)
    try:
        _check_archive(path)
        state: dict[str, Any] = torch.load(path, map_location="cpu", weights_only=True)
        if not isinstance(state, dict):
            raise TypeError(f"it holds a {type(state).__name__}")
        state["format"]
    except Exception as error:  # without a checksum the content can be anything
        raise damaged(path, first_line(error), advice) from None
    return state, has_checksum


def _check_archive(path: Path) -> None:
    """Raise ValueError for a file whose content is larger than itself: torch compresses nothing."""
    with zipfile.ZipFile(path) as archive:
        if sum(member.file_size for member in archive.infolist()) > path.stat().st_size:
            raise ValueError("it is compressed")
