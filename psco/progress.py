"""Progress and warnings on stderr: a bar on a terminal, an occasional line elsewhere."""

from __future__ import annotations

import sys
import time

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeElapsedColumn

from psco.errors import printable

_SECONDS_BETWEEN_LINES = 30.0


def warn(message: str) -> None:
    """Print a warning of one line on stderr."""
    print(f"warning: {printable(message)}", file=sys.stderr)


class Bar:
    """Shows the fraction done, the remaining time and a short status.

    Parameters
    ----------
    title
        What is being done.
    show
        Whether anything is printed.
    """

    def __init__(self, title: str, show: bool = True) -> None:
        self._title = printable(title)
        self._show = show
        self._console = Console(file=sys.stderr)
        self._progress: Progress | None = None
        self._task: TaskID | None = None
        self._begun = self._last = time.monotonic()
        self._first_done: float | None = None

    def __enter__(self) -> Bar:
        if self._show and self._console.is_terminal:
            # No markup: a file name such as "[red].png" is not a style.
            self._progress = Progress(
                TextColumn("{task.description}", markup=False),
                BarColumn(),
                TextColumn("{task.percentage:3.0f}%  {task.fields[status]}", markup=False),
                TimeElapsedColumn(),
                TextColumn("{task.fields[left]}"),
                console=self._console,
            )
            self._progress.start()
            self._task = self._progress.add_task(self._title, total=1.0, status="", left="")
        return self

    def __exit__(self, *_: object) -> None:
        if self._progress is not None:
            self._progress.stop()

    def update(self, done: float, status: str = "") -> None:
        """Show that the fraction ``done`` in [0, 1] is complete."""
        now = time.monotonic()
        if self._first_done is None:  # a resumed run starts in the middle
            self._first_done, self._begun = done, now
        gained = done - self._first_done
        left = (now - self._begun) * (1 - done) / gained if gained > 0 else None
        words = "" if left is None else f"{clock(left)} left"
        status = printable(status)
        if self._progress is not None and self._task is not None:
            self._progress.update(self._task, completed=done, status=status, left=words)
        elif self._show and (now - self._last > _SECONDS_BETWEEN_LINES or done >= 1):
            self._last = now
            line = f"{self._title}  {done:4.0%}  {status}  {words}"
            self._console.print(line, highlight=False, markup=False)


def clock(seconds: float) -> str:
    """Format a duration as h:mm:ss or m:ss."""
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"
