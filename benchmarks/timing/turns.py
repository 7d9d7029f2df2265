"""Sides of a comparison that take turns, most of them in separate processes."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

from psco.errors import PscoError
from psco.training.environment import environment

T = TypeVar("T")
_SECONDS_TO_END = 5.0
Progress = Callable[[float, str], None]  # called with the fraction done and what comes next


class Worker:
    """A process that measures when asked; it starts at once and is awaited at its first turn.

    It writes a line of JSON to stdout when it is ready, and then one for each line of JSON that it
    reads from stdin.

    Parameters
    ----------
    name
        For error messages.
    command
        Program and arguments.
    variables
        Environment variables to set, besides those of `worker_environment`.
    """

    def __init__(
        self, name: str, command: Sequence[str], variables: Mapping[str, str] | None = None
    ) -> None:
        self._name = name
        self._errors = tempfile.TemporaryFile("w+")  # noqa: SIM115 - lives as long as the process
        self._process = subprocess.Popen(
            list(command),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            text=True,
            env={**worker_environment(), **(variables or {})},
        )
        self._ready = False

    def __enter__(self) -> Worker:
        return self

    def __exit__(self, *_: object) -> None:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        # A process that waits for its turn ends when stdin does, and cleans up after itself.
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.close()
        try:
            self._process.wait(timeout=_SECONDS_TO_END)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._process.stdout.close()
        self._errors.close()

    def wait(self) -> None:
        """Wait until the process is ready to measure."""
        if not self._ready:
            self._answer()
            self._ready = True

    def measure(self, **options: Any) -> Any:
        """Let the process measure once and return its answer.

        Raises
        ------
        PscoError
            With the last line of its stderr, if the process ends instead.
        """
        self.wait()
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(options) + "\n")
        self._process.stdin.flush()
        return self._answer()

    def _answer(self) -> Any:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if line:
            return json.loads(line)
        code = self._process.wait()
        self._errors.seek(0)
        words = self._errors.read().strip().splitlines() or [f"exit code {code}"]
        raise PscoError(f"benchmark process {self._name!r} ended: {words[-1]}")


def worker_environment() -> dict[str, str]:
    """Return the environment variables that all sides share."""
    # On a GPU, calls return before their work is done and a timer around them measures nothing.
    variables = {**os.environ, "CUDA_VISIBLE_DEVICES": ""}
    if "OMP_WAIT_POLICY" not in variables:  # as the program `psco` does
        variables.setdefault("GOMP_SPINCOUNT", "3000")
    return variables


def take_turns(
    sides: Mapping[str, Callable[[], T]], turns: int, on_progress: Progress
) -> dict[str, list[T]]:
    """Measure all sides in every turn: A B in one, B A in the next.

    The sides of a turn stand close together in time, so a machine that is slow for a while slows
    all of them. Reversing the order keeps a clock that falls steadily from favouring the first.

    Parameters
    ----------
    sides
        What to measure, by name.
    turns
        How often.
    on_progress
        Called before each measurement.

    Returns
    -------
    dict
        By name, one result a turn.
    """
    results: dict[str, list[T]] = {name: [] for name in sides}
    for turn in range(turns):
        order = list(sides) if turn % 2 == 0 else list(sides)[::-1]
        for place, name in enumerate(order):
            done = (turn + place / len(order)) / turns
            on_progress(done, f"{name}, turn {turn + 1} of {turns}")
            results[name].append(sides[name]())
    return results


def describe_environment(module: str) -> dict[str, Any]:
    """Return software, machine and the command line of a benchmark, for its JSON."""
    return {**environment(), "command": ["python", "-m", module, *sys.argv[1:]]}


def subprogress(on_progress: Progress, section: int, sections: int) -> Progress:
    """Return a progress callback for one of several equal sections of the work."""

    def update(done: float, news: str) -> None:
        on_progress((section + done) / sections, news)

    return update
