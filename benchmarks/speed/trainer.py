"""The real training loop on invented images: seconds of a step, and their shares."""

from __future__ import annotations

import tempfile
import time
from pathlib import Path

import torch

from benchmarks.speed.inputs import Case, in_classes, invent_images
from benchmarks.speed.phases import PhaseClock, watching
from psco.errors import PscoError
from psco.progress import Bar
from psco.recipes.build import build_method, build_views
from psco.training.inputs import feed_for
from psco.training.loop import Loop

WARM_UP = 2  # steps before the clock starts: caches, the heap, and batches prepared ahead


class Trainer:
    """A training run that goes on for a few steps whenever it is told to.

    The run is that of `psco.pretrain` from the data set to the metrics, without a folder to write
    to; only its allocator is left to the process, as sides are compared that differ in it.

    Parameters
    ----------
    case
        The setting.

    Raises
    ------
    PscoError
        If training would run on another device than the CPU, where calls return before their work
        is done and a stopwatch around them measures nothing.
    """

    def __init__(self, case: Case) -> None:
        recipe = case.settled()
        image, train = recipe.image, recipe.train
        images = invent_images(case.images, image.source_size, image.channels)
        torch.manual_seed(train.seed)
        method = build_method(recipe)
        if method.kind == "supervised":
            images = in_classes(images)
        method.start(len(images.classes))
        feed = feed_for(method, images, train.batch_size, train.seed)
        # Nothing is written there: the folder is for checkpoints, and none is made.
        nowhere = Path(tempfile.gettempdir()) / "psco-bench"
        self.loop = Loop(method, build_views(recipe), feed, recipe, nowhere)
        self.batch_size = feed.batch_size * train.accumulate
        if self.loop.fabric.device.type != "cpu":
            raise PscoError(
                f"psco bench measures CPUs; training here uses {self.loop.fabric.device}"
            )

    def seconds(self, steps: int) -> float:
        """Train for some steps; give the mean seconds of one, after the warm-up."""
        ticks = _Ticks(WARM_UP + steps)
        self._run(ticks)
        return ticks.mean(WARM_UP)

    def shares(self, steps: int) -> dict[str, float]:
        """Train for some steps; give the share of every phase in their time; PsCo only."""
        self._run(_Ticks(WARM_UP))
        clock = PhaseClock()
        with watching(self.loop, clock):
            self._run(_Ticks(steps))
            return clock.shares()

    def _run(self, ticks: _Ticks) -> None:
        # The loop asks before every step whether to stop, which makes that a clock of its steps.
        with Bar("", show=False) as bar:
            self.loop.run([], bar, lambda: None, lambda _step, _time: False, ticks)


class _Ticks:
    """Answers ``stop()`` of a loop after some steps, and remembers when it was asked."""

    def __init__(self, steps: int) -> None:
        self._steps = steps
        self._times: list[float] = []

    def __call__(self) -> bool:
        self._times.append(time.perf_counter())
        return len(self._times) > self._steps

    def mean(self, skip: int) -> float:
        """Give the mean seconds of the steps after the first ``skip``."""
        times = self._times[skip:]
        return (times[-1] - times[0]) / (len(times) - 1)
