"""The collapse watch: a network that gives every image the same embedding has learned nothing."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

from psco.errors import PscoError
from psco.training.checkpoint import METRICS
from psco.training.logging import Logger, Row, read_metrics

LEAST_SPREAD = 0.1
PATIENCE = 5  # rows of the training curves in a row


def collapse_warning(rows: Sequence[Row]) -> str | None:
    """Say whether the embeddings have collapsed, in a sentence, or give None.

    Parameters
    ----------
    rows
        The training curves so far; the last few decide. Those without a ``spread`` (see
        `psco.methods.base.spread`) tell nothing.
    """
    last = rows[-PATIENCE:]
    if len(last) < PATIENCE or not all(row.get("spread", 1.0) < LEAST_SPREAD for row in last):
        return None
    return (
        f"the embeddings have collapsed: their spread was {last[-1]['spread']:.3f} at step "
        f"{last[-1]['step']:.0f} and below {LEAST_SPREAD} since step {last[0]['step']:.0f} or "
        f"before, where 1 is even and 0 the same for every image; check that the images differ, "
        f"or try a lower train.learning_rate or weaker views"
    )


def run_warning(folder: Path) -> str | None:
    """Give what a report should say about the training curves in a run folder, or None."""
    try:
        return collapse_warning(read_metrics(folder / METRICS))
    except PscoError as error:  # the curves are damaged, which takes nothing from the network
        return str(error)


def collapse_watch() -> Logger:
    """Make a logger that warns on stderr, once, when the embeddings collapse."""
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
