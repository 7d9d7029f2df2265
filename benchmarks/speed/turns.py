"""Processes that take turns, from the outside."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from psco.errors import PscoError

T = TypeVar("T")


class Side:
    """A process of `benchmarks.speed.sides`; starts at once, and is waited for at its first turn.

    Parameters
    ----------
    name
        One of ``benchmarks.speed.sides.SIDES``.
    options
        Of that side; anything JSON can hold.
    """

    def __init__(self, name: str, **options: Any) -> None:
        self._name = name
        self._errors = tempfile.TemporaryFile("w+")  # noqa: SIM115 - lives as long as the process
        self._process = subprocess.Popen(
            [sys.executable, "-m", "benchmarks.speed.sides", name, json.dumps(options)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            text=True,
            # Timers around calls measure nothing where calls return before their work is done.
            env={**os.environ, "CUDA_VISIBLE_DEVICES": ""},
        )
        self._ready = False

    def __enter__(self) -> Side:
        return self

    def __exit__(self, *_: object) -> None:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.kill()
        self._process.wait()
        self._process.stdin.close()
        self._process.stdout.close()
        self._errors.close()

    def wait(self) -> None:
        """Wait until the side has made what its turns need."""
        if not self._ready:
            self._answer()
            self._ready = True

    def turn(self, **options: Any) -> Any:
        """Let the side do its work once; give what it answers.

        Raises
        ------
        PscoError
            With its last words, if the process ends instead.
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
        raise PscoError(f"the side {self._name!r} of the benchmark has ended: {words[-1]}")


def take_turns(
    turns: Mapping[str, Callable[[], T]], repeats: int, tell: Callable[[float, str], None]
) -> dict[str, list[T]]:
    """Run all sides in turn, A, B, …, A, B, …: what slows the machine for a while slows all.

    Parameters
    ----------
    turns
        What to run, by name.
    repeats
        How often.
    tell
        Called before each turn, with the share done and a few words.

    Returns
    -------
    dict
        By name, the results in the order of the repeats.
    """
    results: dict[str, list[T]] = {name: [] for name in turns}
    for repeat in range(repeats):
        for place, (name, turn) in enumerate(turns.items()):
            done = (repeat + place / len(turns)) / repeats
            tell(done, f"{name}, {repeat + 1} of {repeats}")
            results[name].append(turn())
    return results
