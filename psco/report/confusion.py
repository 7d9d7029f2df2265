"""A confusion matrix over the classes that occur in few-shot tasks."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

import numpy as np

from psco.data.tasks import Tasks

_CLASSES_SHOWN = 15


def confusion_counts(
    predicted: np.ndarray, tasks: Tasks, labels: np.ndarray, classes: int
) -> np.ndarray:
    """Count how often queries of each class were predicted as each class.

    Parameters
    ----------
    predicted
        (T, N, Q) predicted classes of the tasks, 0..N−1.
    tasks, labels
        The tasks, and the classes (n,) of the images that they refer to.
    classes
        Number of classes C.

    Returns
    -------
    ndarray
        (C, C) int64; rows are true classes, columns predicted ones.
    """
    names = labels[tasks.support[:, :, 0]]  # (T, N), class of the image set for each row of a task
    task = np.arange(len(names))[:, None, None]
    counts = np.zeros((classes, classes), dtype=np.int64)
    true = np.broadcast_to(names[:, :, None], predicted.shape)
    np.add.at(counts, (true.ravel(), names[task, predicted].ravel()), 1)
    return counts


def confusion_table(counts: np.ndarray, names: Sequence[str]) -> str:
    """Return the matrix as HTML, in percent of each row; of many classes the least accurate ones.

    Parameters
    ----------
    counts
        (C, C), see `confusion_counts`.
    names
        Names of the C classes.
    """
    totals = counts.sum(axis=1)
    occurring = np.flatnonzero(totals)
    accuracy = counts.diagonal()[occurring] / totals[occurring]
    shown = np.sort(occurring[np.argsort(accuracy, kind="stable")][:_CLASSES_SHOWN])
    fractions = counts[shown] / totals[shown][:, None]  # (s, C)
    others = 1 - fractions[:, shown].sum(axis=1)
    has_others = len(shown) < len(occurring)
    head = "".join(f'<th title="{escape(names[i])}">{n + 1}</th>' for n, i in enumerate(shown))
    if has_others:
        head += "<th>others</th>"
    rows = []
    for row, index in enumerate(shown):
        cells = [_cell(fractions[row, column], row == place) for place, column in enumerate(shown)]
        if has_others:
            cells.append(_cell(others[row], False))
        name = escape(names[index])
        rows.append(f'<tr><th title="{name}">{row + 1} {name}</th>{"".join(cells)}</tr>')
    return (
        f'<div class="scroll"><table class="confusion"><thead><tr><th>true \\ predicted</th>{head}'
        f"</tr></thead><tbody>{''.join(rows)}</tbody></table></div>"
    )


def _cell(fraction: float, is_diagonal: bool) -> str:
    percent = 100 * float(fraction)
    shade = f"background:color-mix(in srgb, var(--blue) {0.6 * percent:.0f}%, transparent)"
    text = "" if percent < 0.5 else f"{percent:.0f}"
    mark = ' class="hit"' if is_diagonal else ""
    return f'<td{mark} style="{shade}">{text}</td>'
