"""The tables as they are now: ours beside the paper's, and what is missing."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from psco.evaluation.result import interval
from psco.evaluation.tables.reader import Number, Table, TableRow
from psco.experiments.recipe_report import thinned
from psco.experiments.reproduce.budget import Budget, fraction_done
from psco.experiments.reproduce.costs import Costs
from psco.experiments.reproduce.given import given_row
from psco.experiments.reproduce.jobs import Job, row_job
from psco.experiments.reproduce.requests import Request
from psco.experiments.reproduce.sets import DataSets, missing_note
from psco.experiments.reproduce.work import RUN, read_done, read_test
from psco.methods import METHODS
from psco.progress import clock
from psco.training.checkpoint import METRICS
from psco.training.logging import read_metrics

NOT_IMPLEMENTED = "not implemented"
TRANSDUCTIVE_NOTE = (
    "The paper's numbers of this row are transductive: the queries of a task are normalised or "
    "clustered together. Ours are inductive unless the row says otherwise."
)
_POINTS = 120  # of a curve


def table_result(
    table: Table, request: Request, out: Path, sets: DataSets, costs: Costs
) -> dict[str, Any]:
    """Return a table as a dict: its rows with ours, the paper's, the difference and notes."""
    budget, tasks = Budget(request.budget), request.tasks
    rows: list[tuple[TableRow, list[Job]]] = []
    for row in table.rows:
        jobs = (row_job(table, row, budget, seed, sets, tasks) for seed in request.seeds)
        rows.append((row, [job for job in jobs if job is not None]))
    for name in request.given:
        given, job = given_row(table, name, out, tasks)
        rows.append((given, [job]))
    first = rows[0][1] if table.compares_rows else []
    return {
        "table": table.name,
        "file": table.file,
        "title": table.title,
        "where": table.where,
        "data": table.data,
        "images": table.images,
        "recipe": table.recipe,
        "split": table.split,
        "budget": budget.text,
        "seeds": list(request.seeds),
        "paper_seeds": table.seeds,
        "plot": table.plot,
        "curve": table.curve,
        "columns": [column._asdict() for column in table.settings],
        "rows": [_row(table, row, jobs, first, out, sets, costs) for row, jobs in rows],
        "notes": [table.notes[note] for note in table.table_notes],
    }


def _row(
    table: Table,
    row: TableRow,
    jobs: Sequence[Job],
    first: Sequence[Job],
    out: Path,
    sets: DataSets,
    costs: Costs,
) -> dict[str, Any]:
    trained = [(job, done) for job in jobs if (done := read_done(job.folder(out))) is not None]
    notes = [table.notes[note] for note in row.notes]
    notes += [TRANSDUCTIVE_NOTE] if row.transductive else []
    why = NOT_IMPLEMENTED if not jobs else _why_empty(jobs, out, costs)
    fractions = [fraction_done(job.full, done["steps"], done["epochs"]) for job, done in trained]
    known = [fraction for fraction in fractions if fraction is not None]
    untrained = row.method in METHODS and METHODS[row.method].kind == "baseline"
    return {
        "name": row.name or row.method,
        "method": row.method,
        "group": row.group,
        "changes": row.set,
        "images": row.images,
        "fraction": min(known) if known and not untrained else None,
        "epochs": min((done["epochs"] for _, done in trained), default=None),
        "minutes": round(sum(done["seconds"] for _, done in trained) / 60, 1),
        "seeds": [job.recipe.train.seed for job, _ in trained],
        "transductive_paper": row.transductive,
        "notes": notes,
        "why": why,
        "cells": [
            {
                **_cell(place, row, [job for job, _ in trained], out, sets, why),
                "from_first": _difference(place, jobs, first, out, sets),
            }
            for place in range(len(table.settings))
        ],
        "curves": list(_curves(table, jobs, out)),
    }


def _why_empty(jobs: Sequence[Job], out: Path, costs: Costs) -> str:
    """Return what an empty cell of a row would take."""
    waiting = [job for job in jobs if read_done(job.folder(out)) is None]
    if not waiting:
        return ""
    if waiting[0].problem is not None:
        return missing_note(waiting[0].data)
    seconds = [costs.seconds_left(job) for job in waiting]
    known = [each for each in seconds if each is not None]
    if METHODS[waiting[0].recipe.method.name].kind == "baseline":
        return "to be tested; there is no training"
    if len(known) == len(seconds):
        return f"{clock(sum(known))} of training to go"
    train = waiting[0].recipe.train
    length = f"{train.epochs:g} epochs" if train.epochs else f"{train.steps} steps"
    return f"{length} of training to go" + (f" for {len(waiting)} seeds" * (len(waiting) > 1))


def _cell(
    place: int, row: TableRow, jobs: Sequence[Job], out: Path, sets: DataSets, why: str
) -> dict[str, Any]:
    paper: Number | None = row.paper[place] if row.paper else None
    cell: dict[str, Any] = {
        "paper": None if paper is None else paper._asdict(),
        "ours": None,
        "difference": None,
        "notes": [],
        "why": why,
    }
    found = [result for job in jobs if (result := _tested(job, place, out, sets)) is not None]
    if not found:
        if jobs:
            test = jobs[0].tests[place]
            problem = sets.problem(test.data, test.split, jobs[0].recipe.image)
            cell["why"] = "to be tested" if problem is None else missing_note(test.data)
        return cell
    first = found[0]
    number = min(len(result["per_task"]) for result in found)
    values = np.array([result["per_task"][:number] for result in found])  # (seeds, tasks)
    mean, ci95 = interval(values.mean(axis=0))
    cell["ours"] = {
        "mean": mean,
        "ci95": ci95,
        "seeds": [result["training_seed"] for result in found],
        "each": [float(value) for value in values.mean(axis=1)],
        **{name: first[name] for name in ("rule", "transductive", "tasks", "split", "data")},
    }
    cell["why"] = ""
    if paper is None:
        return cell
    cell["difference"] = mean - paper.mean
    cell["notes"] = [f"Other test: {text}." for text in first["departures"]]
    return cell


def _difference(
    place: int, jobs: Sequence[Job], first: Sequence[Job], out: Path, sets: DataSets
) -> dict[str, Any] | None:
    """Return the difference of a cell from the first row, on the same tasks and seeds."""
    mine, theirs = (
        {r["training_seed"]: r["per_task"] for job in row if (r := _tested(job, place, out, sets))}
        for row in (jobs, first)
    )
    seeds = [seed for seed in mine if seed in theirs]
    if not seeds or jobs is first:
        return None
    gaps = np.array([np.subtract(mine[seed], theirs[seed]) for seed in seeds])  # (seeds, tasks)
    mean, ci95 = interval(gaps.mean(axis=0))
    return {"mean": mean, "ci95": ci95, "seeds": seeds, "each": gaps.mean(axis=1).tolist()}


def _tested(job: Job, place: int, out: Path, sets: DataSets) -> dict[str, Any] | None:
    test, image = job.tests[place], job.recipe.image
    missing = sets.problem(test.data, test.split, image) is not None
    fingerprint = None if missing else sets.fingerprint(test.data, test.split, image)
    found = read_test(job.folder(out), test, fingerprint)
    return None if found is None else {**found, "training_seed": job.recipe.train.seed}


def _curves(table: Table, jobs: Sequence[Job], out: Path) -> Iterator[dict[str, Any]]:
    """Yield the training curve of each seed that has one, also of unfinished runs."""
    if table.curve is None:
        return
    for job in jobs:
        rows = read_metrics(job.folder(out) / RUN / METRICS)
        points = [
            [point["epoch"], point[table.curve]]
            for point in thinned(rows, _POINTS)
            if table.curve in point
        ]
        if points:
            yield {"seed": job.recipe.train.seed, "points": points}
