"""Train a recipe with several seeds, test all runs on the same tasks, write one file."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from psco.classifier.pretraining import pretrain
from psco.data import ImageSet, load_dataset
from psco.data.tasks import Tasks
from psco.errors import InputError
from psco.evaluation.embed import load
from psco.evaluation.evaluate import Ways, default_rule, draw_tasks, evaluate_tasks
from psco.evaluation.result import Report, interval
from psco.evaluation.rules import RULES
from psco.files.atomic import atomic_path
from psco.recipes.recipe import default_recipe, load_recipe
from psco.training.environment import environment
from psco.training.run import Run

QUERIES = 15
SEEDS = (0, 1, 2)  # the paper averages three runs
REPORT = "report.json"
_MAX_ROWS = 100  # of the training curves of each run


def report_recipe(
    data: str,
    *,
    out: str | Path,
    recipe: str | Path | None = None,
    seeds: Sequence[int] = SEEDS,
    overrides: Sequence[str] = (),
    rules: Sequence[str] = (),
    split: str = "test",
    ways: Sequence[Ways] = (5, 20),
    shots: Sequence[int] = (1, 5),
    tasks: int = 2000,
    task_seed: int = 0,
    root: str | Path | None = None,
    progress: bool = True,
) -> dict[str, Any] | None:
    """Train a recipe once per seed, test the runs, and write ``report.json``.

    Parameters
    ----------
    data
        Name of a data set with a training and a test split.
    out
        Folder for the run folders, ``seed-0``, ..., and the report. Runs in it are continued;
        finished ones are only tested.
    recipe, overrides
        See `pretrain`.
    seeds
        Training seeds; at least one.
    rules
        Classification rules, names in ``psco.RULES``; by default the method's own rule.
    split
        The split to test on: ``test``, or ``val`` to make choices by.
    ways, shots, tasks, task_seed
        The tasks: ``tasks`` of each combination of ``ways`` and ``shots``, the same for all seeds
        and rules.
    root
        Folder of the data set; by default ``PSCO_DATA``.
    progress
        Show progress on stderr.

    Returns
    -------
    dict or None
        The content of the file: ``results`` (accuracy in percent per seed, rule and setting),
        ``mean`` (over the seeds), ``runs`` (steps and minutes), the training ``curves``,
        ``seconds`` of the longest run, ``recipe`` and ``environment``. None if training was
        interrupted; the same call continues.

    Raises
    ------
    InputError
        If an argument is wrong; then nothing has been trained.
    """
    if len(set(seeds)) != len(seeds) or not seeds:
        raise InputError(f"seeds must be different numbers, at least one, got {list(seeds)}")
    for rule in rules:
        RULES[rule]
    resolved = load_recipe(recipe or default_recipe(data), overrides)
    size, channels = resolved.image.source_size, resolved.image.channels
    images = load_dataset(data, split, root, size=size, channels=channels, progress=progress)
    drawn = draw_tasks(images, [(w, k) for w in ways for k in shots], QUERIES, tasks, task_seed)
    runs: list[Run] = []
    for seed in seeds:
        run = pretrain(
            data,
            out=Path(out) / f"seed-{seed}",
            root=root,
            recipe=resolved,
            seed=seed,
            resume=True,
            title=f"seed {seed} ({len(runs) + 1} of {len(seeds)})",
            progress=progress,
        )
        if not run.finished:
            return None
        runs.append(run)
    measured = [_measure(run, images, drawn, rules, progress) for run in runs]
    curves = [thinned(run.metrics, _MAX_ROWS) for run in runs]
    report = {
        "results": [
            {"method": resolved.method.name, "training_seed": seed, **row.as_dict()}
            for seed, reports in zip(seeds, measured, strict=True)
            for row in reports
        ],
        "mean": [_mean(reports) for reports in zip(*measured, strict=True)],
        "runs": [
            {"training_seed": s, "steps": run.steps, "minutes": round(_seconds(run) / 60, 2)}
            for s, run in zip(seeds, runs, strict=True)
        ],
        "curves": [
            {"training_seed": seed, **row}
            for seed, rows in zip(seeds, curves, strict=True)
            for row in rows
        ],
        "seconds": max(_seconds(run) for run in runs),
        **surroundings(runs[0]),
    }
    write_report(Path(out) / REPORT, report)
    return report


def surroundings(run: Run) -> dict[str, Any]:
    """Return the last entries of every report: the resolved ``recipe`` and the ``environment``."""
    return {"recipe": run.recipe.model_dump(mode="json"), "environment": environment()}


def write_report(path: Path, report: dict[str, Any]) -> None:
    """Write a report atomically."""
    with atomic_path(path) as temporary:
        temporary.write_text(json.dumps(report, indent=1) + "\n")


def thinned(rows: Sequence[dict[str, float]], most: int) -> list[dict[str, float]]:
    """Return at most ``most`` rows at equal distances, including the last one."""
    every = max(1, -(-len(rows) // most))
    return list(rows[::-1][::every])[::-1]


def _measure(
    run: Run, images: ImageSet, drawn: Sequence[Tasks], rules: Sequence[str], progress: bool
) -> list[Report]:
    encoder = load(run.folder)
    return [
        report
        for rule in rules or (default_rule(encoder, images),)
        for report in evaluate_tasks(encoder, images, drawn, rule, progress=progress)
    ]


def _mean(reports: Sequence[Report]) -> dict[str, Any]:
    """Average over the seeds task by task; the interval is over the tasks."""
    first = reports[0]
    mean, ci95 = interval(np.mean([report.per_task for report in reports], axis=0))
    facts = {"rule": first.rule, "ways": first.ways, "shots": first.shots}
    return {**facts, "tasks": first.tasks, "seeds": len(reports), "mean": mean, "ci95": ci95}


def _seconds(run: Run) -> float:
    return run.metrics[-1]["seconds"] if run.metrics else 0.0  # a baseline is not trained
