"""Training curves: averages over a few steps, as rows of a CSV file and in TensorBoard.

The last column of the file, ``check``, is a checksum of the row and of the column names. Files of
format 1 have no such column.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from torch import Tensor

from psco.errors import import_optional
from psco.files.atomic import atomic_path
from psco.files.checksums import damaged

Row = Mapping[str, float]
Logger = Callable[[Row], None]
_CHECK = "check"
_RENAMED = {"spread": "embedding_std"}  # columns of files from before 0.1


class Meter:
    """Averages named scalars without waiting for the device until they are read."""

    def __init__(self) -> None:
        self._sums: dict[str, Tensor] = {}
        self._count = 0

    def add(self, values: Mapping[str, Tensor]) -> None:
        """Add one step's scalars."""
        for name, value in values.items():
            value = value.detach()
            self._sums[name] = self._sums[name] + value if name in self._sums else value
        self._count += 1

    def read(self) -> dict[str, float]:
        """Return the averages and start again."""
        averages = {name: float(value) / self._count for name, value in self._sums.items()}
        self._sums, self._count = {}, 0
        return averages


def csv_logger(path: Path, done: int) -> Logger:
    """Return a logger that appends rows to a CSV file.

    It raises OSError if a row cannot be written; the next call then also writes what is missing.

    Parameters
    ----------
    path
        The file. Rows after step ``done`` are removed first: a resumed run computes them again.
    done
        Steps already taken, 0 for a new run.
    """
    rows = [row for row in read_metrics(path) if row["step"] <= done]
    columns = list(rows[0]) if rows else []
    with atomic_path(path) as temporary:
        temporary.write_text("".join([_header(columns), *(_line(row, columns) for row in rows)]))
    file = path.open("ab", buffering=0)
    unwritten = b""

    def log(row: Row) -> None:
        nonlocal unwritten
        if not columns:
            columns.extend(row)
            unwritten += _header(columns).encode()
        unwritten += _line(row, columns).encode()
        while unwritten:  # on a full disk only part of a row may be written
            unwritten = unwritten[file.write(unwritten) :]

    return log


def _header(columns: Sequence[str]) -> str:
    return ",".join([*columns, _CHECK]) + "\n" if columns else ""


def _line(row: Row, columns: Sequence[str]) -> str:
    values = [f"{row[name]:.6g}" for name in columns]
    return ",".join([*values, _checksum(columns, values)]) + "\n"


def _checksum(columns: Sequence[str], values: Sequence[str]) -> str:
    return f"crc32:{zlib.crc32(','.join([*columns, *values]).encode()):08x}"


def tensorboard_logger(folder: Path) -> Logger:
    """Return a logger that writes rows as TensorBoard scalars (extra ``tensorboard``)."""
    writer = import_optional("torch.utils.tensorboard", "tensorboard").SummaryWriter(str(folder))

    def log(row: Row) -> None:
        for name, value in row.items():
            writer.add_scalar(name, value, int(row["step"]))
        writer.flush()

    return log


def read_metrics(path: Path) -> list[dict[str, float]]:
    """Return the rows of ``metrics.csv``, or none if there is no file yet.

    An incomplete last line, as a crash leaves it, is skipped.

    Raises
    ------
    PscoError
        If a row is damaged.
    """
    if not path.is_file():
        return []
    lines = path.read_text(encoding="utf-8", errors="replace").splitlines(keepends=True)
    columns = lines[0].rstrip("\r\n").split(",") if lines else []
    rows = []
    for number, line in enumerate(lines[1:], start=2):
        row = _read_line(line.rstrip("\r\n"), columns)
        if row is not None:
            rows.append({_RENAMED.get(name, name): value for name, value in row.items()})
        elif not _is_cut(line, columns):
            raise damaged(path, f"line {number}", "remove that line, or restore the file")
    return rows


def _is_cut(line: str, columns: Sequence[str]) -> bool:
    """Whether a line is incomplete, as a crash leaves it."""
    values = line.split(",")
    length = len(_checksum([], []))
    return not line.endswith("\n") and (len(values) < len(columns) or len(values[-1]) < length)


def _read_line(line: str, columns: Sequence[str]) -> dict[str, float] | None:
    """Return the numbers of a line, or None if one is missing or the checksum differs."""
    values = line.split(",")
    if len(values) != len(columns):
        return None
    if columns[-1] == _CHECK:
        *values, check = values
        columns = columns[:-1]
        if check != _checksum(columns, values):
            return None
    try:
        return dict(zip(columns, map(float, values), strict=True))
    except ValueError:
        return None
