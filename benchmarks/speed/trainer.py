"""The training loop of psco on synthetic images: seconds of a step, and fractions of it."""

from __future__ import annotations

import tempfile
import time
from pathlib import Path

import torch

from benchmarks.speed.phases import PhaseClock, watching
from benchmarks.timing.cases import Case, synthetic_images, with_labels
from psco.errors import PscoError
from psco.progress import Bar
from psco.recipes.build import build_method, build_views
from psco.training.inputs import feed_for
from psco.training.loop import Loop

WARM_UP = 2  # steps before the clock starts: they fill caches, the heap and the prefetch queue


class Trainer:
    """A training run that continues for a few steps at a time.

    It is the run of `psco.pretrain` from the data set to the metrics, without a run folder. The
    allocator is left to the process, because sides that differ in it are compared.

    Parameters
    ----------
    case
        The setting.

    Raises
    ------
    PscoError
        If training would not run on the CPU: elsewhere calls return before their work is done, and
        a timer around them measures nothing.
    """

    def __init__(self, case: Case) -> None:
        recipe = case.resolve()
        image, train = recipe.image, recipe.train
        images = synthetic_images(case.images, image.source_size, image.channels)
        torch.manual_seed(train.seed)
        method = build_method(recipe)
        if method.kind == "supervised":
            images = with_labels(images)
        method.set_classes(len(images.classes))
        feed = feed_for(method, images, train.batch_size, train.seed)
        # The loop wants a folder for checkpoints; none is written.
        unused = Path(tempfile.gettempdir()) / "psco-bench"
        self.loop = Loop(method, build_views(recipe), feed, recipe, unused)
        self.batch_size = feed.batch_size * train.accumulate
        if self.loop.fabric.device.type != "cpu":
            raise PscoError(
                f"benchmarks run on the CPU only, got device {self.loop.fabric.device}; "
                "set CUDA_VISIBLE_DEVICES="
            )

    def seconds(self, steps: int) -> float:
        """Train for some steps and return the mean seconds of one, after the warm-up."""
        stopwatch = _Stopwatch(WARM_UP + steps)
        self._run(stopwatch)
        return stopwatch.mean(WARM_UP)

    def fractions(self, steps: int) -> dict[str, float]:
        """Train PsCo for some steps and return the fraction of their time in each phase."""
        self._run(_Stopwatch(WARM_UP))
        clock = PhaseClock()
        with watching(self.loop, clock):
            self._run(_Stopwatch(steps))
            return clock.fractions()

    def _run(self, stopwatch: _Stopwatch) -> None:
        # The loop calls `stop` before every step, so a clock there sees each of them.
        with Bar("", show=False) as bar:
            self.loop.run([], bar, lambda: None, lambda _step, _time: False, stopwatch)


class _Stopwatch:
    """The ``stop()`` of a loop: ends it after some steps and records when it was called."""

    def __init__(self, steps: int) -> None:
        self._steps = steps
        self._times: list[float] = []

    def __call__(self) -> bool:
        self._times.append(time.perf_counter())
        return len(self._times) > self._steps

    def mean(self, skip: int) -> float:
        """Return the mean seconds of the steps after the first ``skip``."""
        times = self._times[skip:]
        return (times[-1] - times[0]) / (len(times) - 1)
