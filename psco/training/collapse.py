"""Collapse: a network that embeds every image alike has learned nothing."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

from psco.errors import PscoError
from psco.training.checkpoint import METRICS
from psco.training.logging import Logger, Row, read_metrics
from psco.training.quality import quality_warning, read_quality

MIN_EMBEDDING_STD = 0.1
PATIENCE = 5  # consecutive rows of the training curves
_COLUMN = "embedding_std"


def collapse_warning(rows: Sequence[Row]) -> str | None:
    """Return a warning if the embeddings have collapsed, else None.

    Parameters
    ----------
    rows
        The training curves so far, of which the last few decide. Rows without an embedding standard
        deviation, which some methods do not log, never count as collapsed.
    """
    last = rows[-PATIENCE:]
    if len(last) < PATIENCE or not all(row.get(_COLUMN, 1.0) < MIN_EMBEDDING_STD for row in last):
        return None
    return (
        f"the embeddings have collapsed: their standard deviation was {last[-1][_COLUMN]:.3f} at "
        f"step {last[-1]['step']:.0f} and has been below {MIN_EMBEDDING_STD} since step "
        f"{last[0]['step']:.0f} or earlier (1: evenly distributed, 0: all the same); check that "
        f"the images differ, or try a lower train.learning_rate or weaker views"
    )


def run_warning(folder: Path) -> str | None:
    """Return what to warn about in the training curves of a run folder, or None."""
    try:
        warning = collapse_warning(read_metrics(folder / METRICS))
        return warning or quality_warning(read_quality(folder))
    except PscoError as error:  # the curves are damaged, but the network is still usable
        return str(error)


def collapse_watch() -> Logger:
    """Return a logger that warns once on stderr when the embeddings collapse."""
    rows: list[Row] = []
    warned = False

    def watch(row: Row) -> None:
        nonlocal warned
        rows.append(row)
        del rows[:-PATIENCE]
        if not warned and (warning := collapse_warning(rows)):
            warned = True
            print(f"warning: {warning}", file=sys.stderr)

    return watch
