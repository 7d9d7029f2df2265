"""The queue: every process takes runs that no other one works on, until a time or a signal."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from psco.errors import PscoError
from psco.experiments.reproduce.jobs import Job
from psco.experiments.reproduce.sets import DataSets
from psco.experiments.reproduce.work import evaluate_job, is_complete, train_job
from psco.files.lock import file_lock
from psco.training.signals import stop_on_signals

LOCKS = "locks"


@dataclass
class Outcome:
    """What a process did.

    Parameters
    ----------
    finished
        Names of the runs that are complete now, by this process or before.
    busy
        Names of those that another process works on.
    problems
        What could not be done, by run or data set.
    stopped_by
        ``"time"``, or the name of the signal that ended the work early.
    """

    finished: list[str] = field(default_factory=list)
    busy: list[str] = field(default_factory=list)
    problems: dict[str, str] = field(default_factory=dict)
    stopped_by: str | None = None


def work_through(
    jobs: Sequence[Job],
    out: Path,
    sets: DataSets,
    minutes: float | None = None,
    progress: bool = True,
) -> Outcome:
    """Train and test the runs that are not complete, in order.

    Parameters
    ----------
    out
        Folder of the runs and their locks.
    minutes
        Stop after this time; a run in training is saved first.
    progress
        Show progress on stderr.
    """
    deadline = None if minutes is None else time.monotonic() + 60 * minutes
    outcome = Outcome()
    with stop_on_signals() as signalled:

        def stop() -> bool:
            if outcome.stopped_by is None and signalled():
                outcome.stopped_by = signalled.signal
            if outcome.stopped_by is None and deadline is not None and time.monotonic() > deadline:
                outcome.stopped_by = "time"
            return outcome.stopped_by is not None

        outcome.problems.update(_missing_data(jobs, sets))
        left = [job for job in jobs if job.problem is None]
        took_one = True
        while left and took_one and not stop():  # again, as another process may have been killed
            took_one = False
            outcome.busy = []
            for job in left:
                if stop():
                    break
                with file_lock(out / LOCKS / f"{job.name}.lock", wait=False) as is_mine:
                    if not is_mine:
                        outcome.busy.append(job.name)
                        continue
                    took_one = True
                    _work_on(job, out, sets, stop, outcome, progress)
            left = [job for job in left if job.name in outcome.busy]
    return outcome


def _missing_data(jobs: Sequence[Job], sets: DataSets) -> dict[str, str]:
    """Return why data sets cannot be loaded, by their names."""
    problems = {job.data: job.problem for job in jobs if job.problem is not None}
    for job in jobs:
        for test in job.tests:
            problem = sets.problem(test.data, test.split, job.recipe.image)
            if problem is not None:
                problems[test.data] = problem
    return problems


def _work_on(
    job: Job,
    out: Path,
    sets: DataSets,
    stop: Callable[[], bool],
    outcome: Outcome,
    progress: bool,
) -> None:
    if is_complete(job, out, sets):
        outcome.finished.append(job.name)
        return
    try:
        if not train_job(job, out, sets, stop, progress):
            outcome.stopped_by = outcome.stopped_by or "SIGINT"  # the trainer took the signal
            return
        problems = evaluate_job(job, out, sets, stop, progress)
    except PscoError as error:
        outcome.problems[job.name] = f"{job.title}: {error}"
        print(f"note: {job.title}: {error}; the other runs go on", file=sys.stderr)
        return
    if problems:
        outcome.problems[job.name] = "; ".join(problems)
    elif is_complete(job, out, sets):
        outcome.finished.append(job.name)


def run_side_by_side(command: Sequence[str], processes: int, environment: Mapping[str, str]) -> int:
    """Run a command several times at once; return the largest exit code.

    The first signal is passed on to the processes, which save their runs and end.
    """
    children = [subprocess.Popen(command, env=dict(environment)) for _ in range(processes)]
    with stop_on_signals(announce=False) as signalled:
        passed_on = False
        while any(child.poll() is None for child in children):
            if signalled() and not passed_on:
                passed_on = True
                for child in children:
                    child.terminate()
            time.sleep(0.2)
    return max(child.returncode for child in children)
