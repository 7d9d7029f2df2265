"""The result of training: a run folder and how far the run got."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from psco.errors import StoppedError, counted
from psco.recipes.recipe import Recipe
from psco.training.checkpoint import METRICS
from psco.training.logging import read_metrics
from psco.training.quality import quality_summary, read_quality
from psco.training.signals import SCHEDULER_SIGNALS


@dataclass(frozen=True)
class Run:
    """A run folder after training has finished or was interrupted.

    Parameters
    ----------
    folder
        The run folder; see ``psco.training.checkpoint`` for its files.
    recipe
        The resolved settings.
    steps
        Steps taken so far.
    finished
        False if the run was interrupted.
    stopped_by
        Name of the signal that interrupted it, such as ``"SIGTERM"``.
    """

    folder: Path
    recipe: Recipe
    steps: int
    finished: bool
    stopped_by: str | None = None

    @property
    def metrics(self) -> list[dict[str, float]]:
        """The rows of the training curves."""
        return read_metrics(self.folder / METRICS)

    @property
    def quality(self) -> list[dict[str, float]]:
        """The measurements of the network without labels; see ``psco.training.quality``."""
        return read_quality(self.folder)

    def require_finished(self, command: str) -> None:
        """Raise StoppedError if the run was interrupted; ``command`` continues it."""
        if self.finished:
            return
        if self.stopped_by not in SCHEDULER_SIGNALS:
            raise StoppedError(f"stopped at step {self.steps}; continue with: {command}", 1)
        job = os.environ.get("SLURM_JOB_ID")
        how = f"requeue with: scontrol requeue {job}, for a script that runs" if job else "requeue"
        raise StoppedError(f"{self.stopped_by}: saved at step {self.steps}; {how}: {command}", 0)


def describe(run: Run) -> str:
    """Return in one line what a run has done and learnt."""
    if not (rows := run.metrics):
        return "nothing to train"
    steps = f"{counted(run.steps, 'step')}, loss {rows[-1]['total']:.3f}"
    learnt = quality_summary(run.quality)
    return steps if learnt is None else f"{steps}; {learnt}"
