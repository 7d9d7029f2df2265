"""Results for many image files, and the tables they are written to."""

from __future__ import annotations

import csv
import importlib
from collections.abc import Iterable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple, TextIO

import numpy as np

from psco.errors import BROKEN_IMPORT, InputError, first_line
from psco.evaluation.rules import Embeddings
from psco.files.atomic import atomic_path


class Row(NamedTuple):
    """The result for one image file.

    Parameters
    ----------
    path
        The file.
    label, probability
        The most probable class; or ``"unknown"``, without a probability.
    runner_up, runner_up_probability
        The second class; for an unknown image, the most probable one.
    nearest_support
        The support most similar to it.
    error
        Why there is no result, else empty.
    """

    path: str
    label: Any = None
    probability: float | None = None
    runner_up: Any = None
    runner_up_probability: float | None = None
    nearest_support: str | None = None
    error: str = ""


class EmbeddedFiles(NamedTuple):
    """Image files as embeddings.

    Parameters
    ----------
    names
        The n files that could be decoded.
    embeddings
        (n,) embeddings.
    labels
        (n,) class names, or None if the listing has none.
    errors
        The other files, and why they cannot be decoded.
    """

    names: list[str]
    embeddings: Embeddings
    labels: np.ndarray | None
    errors: dict[str, str]


FEATURE_FILES = (".npz", ".npy", ".csv", ".parquet")


def check_feature_file(path: Path) -> None:
    """Raise InputError unless features can be written to a file of this name."""
    if path.suffix not in FEATURE_FILES:
        endings = f"{', '.join(FEATURE_FILES[:-1])} or {FEATURE_FILES[-1]}"
        raise InputError(f"--out takes a file name that ends in {endings}, not {str(path)!r}")
    if path.suffix == ".parquet":
        _parquet()


def write_features(path: Path, files: EmbeddedFiles, *, raw: bool = False) -> None:
    """Write features to a file, in the format that its name ends in.

    ``.npz`` holds names, features, support and query representations and any labels; ``.npy`` the
    features alone, in the order of the files; ``.csv`` and ``.parquet`` are tables with the
    columns path, label if there are labels, and f0, f1, ...

    Parameters
    ----------
    path, files
        The file, and what to write.
    raw
        Whether text in a .csv file is written as it is; see `safe_cell`.
    """
    features = files.embeddings.features.numpy()  # (n, width)
    with atomic_path(path) as aside:
        if path.suffix == ".npz":
            with aside.open("wb") as file:
                np.savez(file, **_arrays(files))  # type: ignore[arg-type]
        elif path.suffix == ".npy":
            with aside.open("wb") as file:
                np.save(file, features)
        elif path.suffix == ".parquet":
            arrow, parquet = _parquet()
            parquet.write_table(arrow.table(_columns(files, features)), aside)
        else:
            columns = _columns(files, features)
            with open_csv(aside) as file:
                writer = csv.writer(file)
                writer.writerow(columns)
                for row in zip(*(c.tolist() for c in columns.values()), strict=True):
                    writer.writerow(row if raw else map(safe_cell, row))


def safe_cell(value: Any) -> Any:
    """Return a cell that no spreadsheet takes for a formula.

    Text that starts with ``=``, ``+``, ``-``, ``@`` or a control character gets a leading
    apostrophe: file names and labels may come from strangers. Numbers stay as they are.
    """
    if isinstance(value, str) and value[:1] and (value[0] in "=+-@" or value[0] < " "):
        return f"'{value}"
    return value


def write_rows(path: Path, rows: Iterable[Row], *, raw: bool = False) -> Iterator[Row]:
    """Yield rows and write them to a CSV file, which appears after the last one.

    Parameters
    ----------
    path, rows
        The file and its rows.
    raw
        Whether text is written as it is; see `safe_cell`.
    """
    with atomic_path(path) as aside, open_csv(aside) as file:
        writer = csv.writer(file)
        writer.writerow(Row._fields)
        for row in rows:
            writer.writerow(row if raw else map(safe_cell, row))
            yield row


def open_csv(path: Path) -> TextIO:
    """Open a CSV file to write; names that are not Unicode keep the bytes they have on disk."""
    return path.open("w", newline="", encoding="utf-8", errors="surrogateescape")


def _arrays(files: EmbeddedFiles) -> dict[str, np.ndarray]:
    arrays = {
        "names": np.array(files.names),
        "features": files.embeddings.features.numpy(),
        "support": files.embeddings.support.numpy(),
        "query": files.embeddings.query.numpy(),
    }
    return arrays if files.labels is None else {**arrays, "labels": files.labels}


def _columns(files: EmbeddedFiles, features: np.ndarray) -> dict[str, np.ndarray]:
    labels = {} if files.labels is None else {"label": files.labels}
    numbers = {f"f{place}": features[:, place] for place in range(features.shape[1])}
    return {"path": np.array(files.names), **labels, **numbers}


def _parquet() -> tuple[ModuleType, ModuleType]:
    try:
        return importlib.import_module("pyarrow"), importlib.import_module("pyarrow.parquet")
    except BROKEN_IMPORT as error:
        raise InputError(
            f".parquet files need pyarrow ({first_line(error)}); pip install pyarrow, or write .csv"
        ) from None
