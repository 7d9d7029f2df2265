"""Results for many image files, and the tables they are written to."""

from __future__ import annotations

import csv
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

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


def write_features(path: Path, files: EmbeddedFiles) -> None:
    """Write names, features, support and query representations, and any labels, as .npz."""
    arrays = {
        "names": np.array(files.names),
        "features": files.embeddings.features.numpy(),
        "support": files.embeddings.support.numpy(),
        "query": files.embeddings.query.numpy(),
    }
    if files.labels is not None:
        arrays["labels"] = files.labels
    with atomic_path(path) as aside, aside.open("wb") as file:
        np.savez(file, **arrays)  # type: ignore[arg-type]


def write_rows(path: Path, rows: Iterable[Row]) -> Iterator[Row]:
    """Yield rows and write them to a CSV file, which appears after the last one."""
    # Names that are not Unicode are written with the bytes they have on disk.
    with (
        atomic_path(path) as aside,
        aside.open("w", newline="", encoding="utf-8", errors="surrogateescape") as file,
    ):
        writer = csv.writer(file)
        writer.writerow(Row._fields)
        for row in rows:
            writer.writerow(row)
            yield row
