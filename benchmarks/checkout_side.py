"""One side of `compare_checkouts`: trains the ``psco`` on its PYTHONPATH, a few steps at a time.

It imports nothing from `benchmarks`, because it runs against source trees that may hold another
version of it, and of ``psco`` only the public names `load_recipe` and `pretrain`. The training loop
calls the loggers after every ``train.log_steps`` steps; the logger here waits for a line on stdin,
lets the loop run for a turn, and writes the seconds of a step to stdout.
"""

from __future__ import annotations

import ctypes
import json
import os
import platform
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TextIO

sys.path.pop(0)  # this folder: its modules are no packages of the source tree

import numpy as np

import psco

ROW = 2  # training steps from one call of the loggers to the next


class Turns:
    """A logger that lets training continue only while it is this side's turn.

    A turn is one row of warm-up, in which prefetched batches are used up and the heap grows again,
    and then the rows that are timed.

    Parameters
    ----------
    answers
        Where results go.
    rows
        Timed rows in a turn.
    """

    def __init__(self, answers: TextIO, rows: int) -> None:
        self._answers, self._rows = answers, rows
        self._left = 0  # rows until the turn ends
        self._begin: float | None = None

    def __call__(self, _: Mapping[str, float]) -> None:
        now = time.perf_counter()
        if self._left == self._rows:
            self._begin = now
        if self._left == 0:
            # The very first row compiles kernels and allocates; it belongs to no turn.
            begin = self._begin
            self._answer("ready" if begin is None else (now - begin) / (ROW * self._rows))
            self._left = 1 + self._rows
        self._left -= 1

    def _answer(self, result: Any) -> None:
        return_free_memory()  # before the answer, which lets the other side begin
        print(json.dumps(result), file=self._answers)
        if not sys.stdin.readline():
            sys.exit()


def return_free_memory() -> None:
    """Return free memory to the system, where glibc can, so that waiting sides hold little."""
    if platform.libc_ver()[0] == "glibc":
        ctypes.CDLL(None).malloc_trim(0)


def synthetic_images(count: int, size: int, channels: int) -> np.ndarray:
    """Draw (count, size, size, channels) images of noise, black on white."""
    random = np.random.default_rng(0)
    return np.where(random.random((count, size, size, channels)) < 0.1, 0, 255).astype(np.uint8)


def main() -> None:
    """Train until stdin ends."""
    options = json.loads(sys.argv[1])
    if not Path(psco.__file__).is_relative_to(options["tree"]):
        sys.exit(f"psco was imported from {psco.__file__}, not from {options['tree']}")
    # What libraries print goes to stderr, so that stdout holds nothing but answers.
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)
    overrides = [*options["overrides"], f"train.log_steps={ROW}"]
    image = psco.load_recipe(options["recipe"], overrides).image
    data = options["data"] or synthetic_images(options["images"], image.source_size, image.channels)
    with tempfile.TemporaryDirectory() as folder:
        psco.pretrain(
            data,
            out=Path(folder) / "run",
            recipe=options["recipe"],
            overrides=overrides,
            epochs=1e6,  # longer than anybody measures
            checkpoint_minutes=1e6,
            loggers=[Turns(answers, options["steps"] // ROW)],
            progress=False,
        )


if __name__ == "__main__":
    main()
