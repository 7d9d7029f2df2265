"""An append-only file of entries: what was acknowledged survives a kill at any moment.

Each line is a JSON object, a tab, and the CRC-32 of the object in hexadecimal. The first line names
the format. An entry counts once its whole line is on the disk.
"""

from __future__ import annotations

import json
import os
import zlib
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from psco.errors import InputError, PscoError, quoted
from psco.files.lock import file_lock
from psco.progress import warn

NAME, LOCK = "labels.journal", "lock"
_HEADER = {"journal": "psco labels", "format": 1}


class Journal:
    """The journal of a session, which this process alone writes until `close`.

    Parameters
    ----------
    folder
        Folder of the session; created if missing.

    Raises
    ------
    InputError
        If another process has the session open, or the folder cannot be written to.
    PscoError
        If a line of the journal is damaged. A last line that was not written to its end is an
        entry that was never acknowledged; it is removed with a warning.
    """

    def __init__(self, folder: Path) -> None:
        self.path = folder / NAME
        self._open = ExitStack()
        try:
            self._begin(folder)
        except BaseException:
            self._open.close()
            raise

    def _begin(self, folder: Path) -> None:
        try:
            is_ours = self._open.enter_context(file_lock(folder / LOCK, wait=False))
            if not is_ours:
                raise InputError(
                    f"the session {quoted(folder)} is open in another process; close that one, or "
                    f"use another folder with --session (session= in Python)"
                )
            flags = os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC
            self._file = os.open(self.path, flags, 0o644)
            self._open.callback(self._close_file)
        except OSError as error:
            raise InputError(
                f"cannot write to the session {quoted(folder)}: {error.strerror}; choose a folder "
                f"with --session (session= in Python)"
            ) from None
        self.entries, end = read_entries(self.path)
        if end < os.fstat(self._file).st_size:
            warn(f"the last entry of {quoted(self.path)} is incomplete and is left out")
            os.ftruncate(self._file, end)
        self._end = end
        if not end:
            self._write(_line(_HEADER))

    def append(self, entry: Mapping[str, Any]) -> None:
        """Write an entry to the disk.

        Raises
        ------
        PscoError
            If that fails, such as on a full disk; the journal is as before then.
        """
        self._write(_line(entry))

    def close(self) -> None:
        """Close the file and release the session."""
        self._open.close()

    def _close_file(self) -> None:
        os.close(self._file)
        self._file = -1  # the number may soon be that of another file

    def _write(self, line: bytes) -> None:
        if self._file < 0:
            raise PscoError(f"the session {quoted(self.path.parent)} is closed; open it again")
        try:
            left = memoryview(line)
            while left:
                left = left[os.write(self._file, left) :]
            os.fsync(self._file)
        except OSError as error:
            os.ftruncate(self._file, self._end)
            raise PscoError(
                f"a label cannot be written to {quoted(self.path)}: {error.strerror}; the labels "
                f"before it are safe; make space and give it again"
            ) from None
        self._end += len(line)


def read_entries(path: Path) -> tuple[list[dict[str, Any]], int]:
    """Read a journal without opening it for writing.

    Returns
    -------
    list of dict, int
        The entries, and the length in bytes of the intact part.

    Raises
    ------
    PscoError
        If a line is damaged, except for an incomplete last one, or the file is no journal of this
        version.
    """
    whole = content = path.read_bytes()
    lines = list(_lines(content))
    intact = [_parse(line) for line in lines]
    if intact and intact[-1] is None and _is_torn(lines[-1]):
        content = content[: len(content) - len(lines.pop())]
        intact.pop()
    for number, entry in enumerate(intact, start=1):
        if entry is None:
            raise PscoError(
                f"line {number} of {quoted(path)} is damaged; remove this line to go on without "
                f"its labels, or restore the file from a copy"
            )
    entries = [entry for entry in intact if entry is not None]
    is_new = not entries and _line(_HEADER).startswith(whole)
    if not is_new and entries[:1] != [_HEADER]:
        raise PscoError(
            f"{quoted(path)} is not a journal of format {_HEADER['format']}; install the psco that "
            f"wrote it, or choose another session"
        )
    return entries[1:], len(content)


def _line(entry: Mapping[str, Any]) -> bytes:
    # ASCII, so that names which are not Unicode survive as escapes.
    text = json.dumps(entry, separators=(",", ":")).encode()
    return text + b"\t%08x\n" % zlib.crc32(text)


def _lines(content: bytes) -> Iterator[bytes]:
    begin = 0
    while begin < len(content):
        end = content.find(b"\n", begin) + 1 or len(content)
        yield content[begin:end]
        begin = end


def _is_torn(line: bytes) -> bool:
    """Whether a line was not written to its end; a lost block of a disk leaves zeros."""
    return not line.endswith(b"\n") or b"\0" in line


def _parse(line: bytes) -> dict[str, Any] | None:
    text, _, digits = line.rpartition(b"\t")
    if digits != b"%08x\n" % zlib.crc32(text):
        return None
    try:
        entry = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return entry if isinstance(entry, dict) else None
