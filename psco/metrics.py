"""Training curves: averages over a few steps, as rows of a CSV file and of TensorBoard."""

from __future__ import annotations

import csv
from collections.abc import Callable, Mapping
from pathlib import Path

from torch import Tensor

from psco.optional import require

Row = Mapping[str, float]
Logger = Callable[[Row], None]


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
        """Give the averages and start anew."""
        averages = {name: float(value) / self._count for name, value in self._sums.items()}
        self._sums, self._count = {}, 0
        return averages


def csv_logger(path: Path, done: int) -> Logger:
    """Append rows to a CSV file.

    Parameters
    ----------
    path
        The file; rows beyond step ``done`` are dropped first: a resumed run makes them again.
    done
        Steps already done, 0 for a new run.
    """
    rows = [row for row in read_metrics(path) if row["step"] <= done]
    file = path.open("w", newline="")
    columns: list[str] = []

    def log(row: Row) -> None:
        if not columns:
            columns.extend(row)
            csv.writer(file).writerow(columns)
        csv.writer(file).writerow([f"{row[name]:.6g}" for name in columns])
        file.flush()

    for row in rows:
        log(row)
    return log


def tensorboard_logger(folder: Path) -> Logger:
    """Write rows as TensorBoard scalars (extra ``tensorboard``)."""
    writer = require("torch.utils.tensorboard", "tensorboard").SummaryWriter(str(folder))

    def log(row: Row) -> None:
        for name, value in row.items():
            writer.add_scalar(name, value, int(row["step"]))
        writer.flush()

    return log


def read_metrics(path: Path) -> list[dict[str, float]]:
    """Read the rows of ``metrics.csv``; none if there is no such file yet.

    A last line that a crash has cut short is left out.
    """
    if not path.is_file():
        return []
    with path.open(newline="") as file:
        rows = list(csv.DictReader(file))
    whole = [row for row in rows if None not in row.values() and None not in row]
    return [{name: float(value) for name, value in row.items()} for row in whole]
