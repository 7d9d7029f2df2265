"""A warning when training collapses: every image gets the same embedding."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

from psco.errors import PscoError
from psco.training.checkpoint import METRICS
from psco.training.logging import Logger, Row, read_metrics

LEAST_STD = 0.1
PATIENCE = 5  # rows of the training curves in a row


def collapse_warning(rows: Sequence[Row]) -> str | None:
    """Return a sentence if the embeddings have collapsed, else None.

    Parameters
    ----------
    rows
        The training curves so far; the last few decide. Rows without an ``embedding_std``
        (see `psco.methods.base.embedding_std`) count as not collapsed.
    """
    last = rows[-PATIENCE:]
    if len(last) < PATIENCE or not all(row.get("embedding_std", 1.0) < LEAST_STD for row in last):
        return None
    return (
        f"the embeddings have collapsed: their standard deviation was "
        f"{last[-1]['embedding_std']:.3f} at step {last[-1]['step']:.0f} and below {LEAST_STD} "
        f"since step {last[0]['step']:.0f} or "
        f"before (1: spread evenly, 0: the same for every image); check that the images differ, "
        f"or try a lower train.learning_rate or weaker views"
    )


def run_warning(folder: Path) -> str | None:
    """Return the warning that the training curves of a run folder deserve, or None."""
    try:
        return collapse_warning(read_metrics(folder / METRICS))
    except PscoError as error:  # damaged curves say nothing about the network
        return str(error)


def collapse_watch() -> Logger:
    """Return a logger that warns on stderr, once, when the embeddings collapse."""
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
