"""What a run would take on this machine: a few measured steps, extrapolated."""

from __future__ import annotations

import hashlib
import itertools
import json
import os
import platform
import statistics
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from psco.errors import PscoError
from psco.experiments.reproduce.jobs import Job
from psco.experiments.reproduce.sets import DataSets
from psco.experiments.reproduce.work import RUN, read_done
from psco.files.atomic import atomic_path
from psco.files.cache import cache_dir
from psco.methods import METHODS
from psco.recipes.recipe import load_recipe
from psco.training.checkpoint import METRICS
from psco.training.logging import read_metrics
from psco.training.trainer import Trainer

_STEPS, _WARM_UP = 4, 1
_SECONDS = 20.0  # after which no further step is measured
_FILE = "step-times.json"


class Costs:
    """Estimates the seconds that the training of runs will take.

    Parameters
    ----------
    out
        Folder of the runs; of a run in progress, only the rest counts.
    sets
        The data sets to measure on.
    measure
        Measure a few steps where no earlier measurement on this machine is stored.
    """

    def __init__(self, out: Path, sets: DataSets, measure: bool) -> None:
        self._out, self._sets, self._measure = out, sets, measure
        self._path = cache_dir() / _FILE
        try:
            self._known: dict[str, Any] = json.loads(self._path.read_text())
        except (OSError, ValueError):
            self._known = {}

    def is_open(self, job: Job) -> bool:
        """Whether a run has to be trained."""
        trains = METHODS[job.recipe.method.name].kind != "baseline"
        return trains and read_done(job.folder(self._out)) is None

    def seconds_left(self, job: Job) -> float | None:
        """Return how long the training of a run will take; None if that is not known."""
        if not self.is_open(job):
            return 0.0
        folder = job.folder(self._out)
        train = job.recipe.train
        rows = _rows(folder)
        if train.minutes is not None:
            return 60 * train.minutes - (rows[-1]["seconds"] if rows else 0.0)
        found = self._step(job)
        if found is None:
            return None
        seconds, epoch_steps = found
        steps = train.steps or (train.epochs or 0) * epoch_steps / train.accumulate
        return float(seconds * max(0.0, steps - (rows[-1]["step"] if rows else 0)))

    def _step(self, job: Job) -> tuple[float, float] | None:
        """Return seconds of a step and steps of an epoch."""
        key = _key(job)
        if key not in self._known:
            if not self._measure or job.problem is not None:
                return None
            print(f"measuring {_STEPS} steps of {job.title}", file=sys.stderr)
            try:
                self._known[key] = _measured(job, self._sets)
            except PscoError as error:
                print(f"note: {error}", file=sys.stderr)
                return None
            with atomic_path(self._path) as temporary:
                temporary.write_text(json.dumps(self._known))
        seconds, epoch_steps = self._known[key]
        return seconds, epoch_steps


def best_processes(jobs: Sequence[Job], out: Path, sets: DataSets) -> int:
    """Return how many processes finish a queue soonest: one, or one for each core.

    Steps of the first run are measured with one thread and with all. Small networks gain little
    from a second core, so two runs side by side are often faster than one after the other.
    """
    threads = torch.get_num_threads()
    costs = Costs(out, sets, measure=True)
    open_jobs = [job for job in jobs if job.problem is None and costs.is_open(job)]
    if threads == 1 or len(open_jobs) < threads:
        return 1
    together = costs.seconds_left(open_jobs[0])
    torch.set_num_threads(1)
    try:
        alone = costs.seconds_left(open_jobs[0])
    finally:
        torch.set_num_threads(threads)
    return threads if together and alone and alone < threads * together else 1


def _measured(job: Job, sets: DataSets) -> tuple[float, float]:
    recipe = load_recipe(job.recipe, [f"train.steps={_STEPS}", "train.log_steps=1"])
    deadline, calls = time.monotonic() + _SECONDS, itertools.count()
    with tempfile.TemporaryDirectory() as folder:
        trainer = Trainer(
            sets.training_data(job.data, job.recipe.image, job.images),
            Path(folder) / RUN,
            recipe,
            root=sets.root,
            progress=False,
            stop=lambda: next(calls) > 0 and time.monotonic() > deadline,
        )
        rows = trainer.run().metrics
    if not rows:
        raise PscoError(f"interrupted while measuring a step of {job.title}")
    images = trainer.loop.feed.batch_size * recipe.train.accumulate if trainer.loop else 0
    seconds = statistics.median(images / row["images_per_s"] for row in rows[_WARM_UP:] or rows)
    return seconds, rows[-1]["step"] * recipe.train.accumulate / rows[-1]["epoch"]


def _rows(folder: Path) -> list[dict[str, float]]:
    try:
        return read_metrics(folder / RUN / METRICS)
    except PscoError:
        return []


def _key(job: Job) -> str:
    """Return what the time of a step mainly depends on, machine included, as a hash."""
    recipe = job.recipe.model_dump(mode="json")
    parts = {name: recipe[name] for name in ("image", "backbone", "heads")}
    train = {name: recipe["train"][name] for name in ("batch_size", "accumulate", "precision")}
    method = recipe["method"]["name"]
    machine = [platform.node(), os.cpu_count(), torch.get_num_threads()]
    text = json.dumps([job.data, job.fingerprint, parts, train, method, machine])
    return hashlib.sha256(text.encode()).hexdigest()[:16]
