"""psco reproduce: the tables and figures of the paper."""

from __future__ import annotations

import json
import os
import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from psco.cli.common import Debug, Json, Root, command, print_note
from psco.errors import InputError, StoppedError

if TYPE_CHECKING:
    from psco.evaluation.tables.reader import Table
    from psco.experiments.reproduce.jobs import Job
    from psco.experiments.reproduce.queue import Outcome
    from psco.experiments.reproduce.sets import DataSets

_OUT = Path("runs/reproduction")


@command
def reproduce(
    tables: Annotated[
        list[str] | None,
        typer.Argument(help="Tables, figures or experiment files; none lists them."),
    ] = None,
    budget: Annotated[
        str, typer.Option(help="Length of each run: paper, epochs (40e) or minutes (10m).")
    ] = "paper",
    seeds: Annotated[list[int], typer.Option(help="Seeds of training.")] = [0],  # noqa: B006
    methods: Annotated[
        list[str] | None, typer.Option(help="Only the rows of these methods.")
    ] = None,
    tasks: Annotated[int | None, typer.Option(help="At most this many tasks a test.")] = None,
    out: Annotated[Path, typer.Option("--out", "-o", help="Folder of runs and results.")] = _OUT,
    root: Root = None,
    minutes: Annotated[
        float | None, typer.Option(help="Stop after this time; the same command continues.")
    ] = None,
    encoder: Annotated[
        list[Path] | None,
        typer.Option(help="Finished runs to test in the settings of the tables, as further rows."),
    ] = None,
    parallel: Annotated[
        int | None,
        typer.Option(
            help="Processes that work on the queue, each with its part of the cores. By default "
            "one for each core if a few steps show that this is faster."
        ),
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Show the queue and do nothing.")
    ] = False,
    as_json: Json = False,
    debug: Debug = False,
) -> None:
    """Reproduce tables and figures of the paper, on any budget.

    Runs are shared between tables, and an interrupted command continues where it was.
    """
    from psco.evaluation.tables.reader import read_table, table_names
    from psco.experiments.reproduce.budget import Budget
    from psco.experiments.reproduce.costs import best_processes
    from psco.experiments.reproduce.given import add_run, given_row
    from psco.experiments.reproduce.jobs import merge_jobs, table_jobs
    from psco.experiments.reproduce.outputs import PAGE, write_outputs
    from psco.experiments.reproduce.queue import work_through
    from psco.experiments.reproduce.requests import Request, add_requests
    from psco.experiments.reproduce.sets import DataSets

    length, sets = Budget(budget), DataSets(root, progress=not as_json)
    if parallel is not None and parallel < 1:
        raise InputError(f"--parallel must be at least 1, got {parallel}")
    if tasks is not None and tasks < 2:
        raise InputError(f"--tasks must be at least 2, got {tasks}")
    if len(set(seeds)) != len(seeds):
        raise InputError(f"--seeds must be different numbers, got {seeds}")
    if not tables:
        _list([read_table(name) for name in table_names()], budget, seeds, out, sets, as_json)
        return
    chosen = [read_table(name) for name in tables]
    _check_methods(chosen, methods or [])
    jobs = table_jobs(chosen, length, seeds, sets, methods or [], tasks)
    if dry_run:
        _show_queue(jobs, out, sets, as_json)
        return
    given = tuple(add_run(path, out) for path in encoder or [])
    add_requests(out, [Request(name, budget, tuple(seeds), tasks, given) for name in tables])
    processes = parallel or best_processes(jobs, out, sets)
    if processes > 1:
        _run_in_parallel(processes)
        return
    tested = (given_row(table, name, out, tasks)[1] for table in chosen for name in given)
    jobs = merge_jobs([*tested, *jobs])
    outcome = work_through(jobs, out, sets, minutes, progress=not as_json)
    results = write_outputs(out, sets)
    names = {table.name for table in chosen}
    shown = [r for r in results if r["table"] in names and r["budget"] == budget]
    if as_json:
        typer.echo(json.dumps(shown))
    else:
        for result in shown:
            _print(result)
    print_note(f"page: {out / PAGE}")
    _end(outcome)


def _check_methods(tables: list[Table], methods: list[str]) -> None:
    from psco.errors import unknown_name

    known = {row.method for table in tables for row in table.rows}
    for name in methods:
        if name not in known:
            raise unknown_name("method of these tables", name, known)


def _run_in_parallel(processes: int) -> None:
    """Start this command several times; locks keep the processes off each other's runs."""
    from psco.experiments.reproduce.queue import run_side_by_side

    words = [*sys.argv[1:], "--parallel", "1"]  # the last one counts
    threads = str(max(1, (os.cpu_count() or 1) // processes))
    program = [sys.executable, "-m", "psco", *words]
    code = run_side_by_side(program, processes, {**os.environ, "OMP_NUM_THREADS": threads})
    if code:
        raise typer.Exit(code)


def _end(outcome: Outcome) -> None:
    """Print what is left and choose the exit code."""
    from psco.training.signals import SCHEDULER_SIGNALS

    for problem in outcome.problems.values():
        print_note(f"note: {problem}")
    if outcome.busy:
        print_note(f"{len(outcome.busy)} runs are in the hands of another process")
    if outcome.stopped_by == "time":
        print_note("the time is over; the same command continues")
    elif outcome.stopped_by is not None:
        code = 0 if outcome.stopped_by in SCHEDULER_SIGNALS else 1
        raise StoppedError(f"{outcome.stopped_by}: saved; the same command continues", code)


def _list(
    tables: list[Table], budget: str, seeds: list[int], out: Path, sets: DataSets, as_json: bool
) -> None:
    """Print what can be reproduced, what is done, what it takes and the command."""
    from psco.experiments.reproduce.budget import Budget
    from psco.experiments.reproduce.costs import Costs
    from psco.experiments.reproduce.jobs import table_jobs
    from psco.experiments.reproduce.work import is_complete
    from psco.methods import METHODS

    costs = Costs(out, sets, measure=True)
    facts: list[dict[str, Any]] = []
    for table in tables:
        jobs = table_jobs([table], Budget(budget), seeds, sets)
        left = [costs.seconds_left(job) for job in jobs if job.problem is None]
        words = ["psco", "reproduce", table.name]
        words += [] if budget == "paper" else ["--budget", budget]
        facts.append(
            {
                "name": table.name,
                "where": table.where,
                "title": table.title,
                "runs": len(jobs),
                "done": sum(is_complete(job, out, sets) for job in jobs),
                "missing_methods": sorted(
                    {r.method for r in table.rows if r.method not in METHODS}
                ),
                "missing_data": _missing_data(table, jobs, sets),
                "seconds": None if None in left or not left else sum(s or 0 for s in left),
                "command": shlex.join(words),
            }
        )
    if as_json:
        typer.echo(json.dumps(facts))
        return
    from rich.console import Console
    from rich.table import Table as Drawn

    drawn = Drawn("table", "paper", "what", "runs done", "training to go", "missing data")
    for fact in facts:
        drawn.add_row(
            *(fact["name"], fact["where"], fact["title"], f"{fact['done']} of {fact['runs']}"),
            _duration(fact["seconds"]),
            ", ".join(fact["missing_data"]),
        )
    drawn.caption = (
        f"Budget {budget}, seeds {', '.join(map(str, seeds))}. Tables share runs, so together they "
        f"take less than the sum. Start one with its name: {facts[0]['command']}"
    )
    Console().print(drawn)


def _missing_data(table: Table, jobs: list[Job], sets: DataSets) -> list[str]:
    if not jobs:
        return []
    image = jobs[0].recipe.image
    missing = [table.data] if jobs[0].problem is not None else []
    return missing + [
        data for data in table.columns if sets.problem(data, table.split, image) is not None
    ]


def _duration(seconds: float | None) -> str:
    if seconds is None:
        return "–"
    hours = seconds / 3600
    if hours >= 48:
        return f"{hours / 24:.1f} days"
    return f"{hours:.1f} h" if hours >= 1 else f"{seconds / 60:.1f} min"


def _show_queue(jobs: list[Job], out: Path, sets: DataSets, as_json: bool) -> None:
    from psco.experiments.reproduce.costs import Costs
    from psco.experiments.reproduce.work import is_complete, read_done

    costs = Costs(out, sets, measure=False)
    facts: list[dict[str, Any]] = []
    for job in jobs:
        state = "to train"
        if job.problem is not None:
            state = f"data missing: {job.problem}"
        elif is_complete(job, out, sets):
            state = "done"
        elif read_done(job.folder(out)) is not None:
            state = "to test"
        elif job.folder(out).exists():
            state = "to continue"
        seconds = None if job.problem is not None else costs.seconds_left(job)
        facts.append(
            {
                "run": job.name,
                "title": job.title,
                "tables": job.tables,
                "tests": len(job.tests),
                "state": state,
                "seconds": seconds,
            }
        )
    if as_json:
        typer.echo(json.dumps(facts))
        return
    for fact in facts:
        typer.echo(
            f"{fact['run']}  {fact['state']}  {_duration(fact['seconds'])}  "
            f"for {', '.join(fact['tables'])}"
        )


def _print(result: dict[str, Any]) -> None:
    from rich.console import Console
    from rich.table import Table as Drawn

    from psco.report.reproduction import (
        column_title,
        describe_row,
        describe_table,
        from_first,
        heading,
        number,
        signed,
    )

    has_paper = any(cell["paper"] for row in result["rows"] for cell in row["cells"])
    drawn = Drawn("row", *map(column_title, result["columns"]), "how", title=heading(result))
    for row in result["rows"]:
        cells = [
            "\n".join(
                [
                    number(cell["ours"]),
                    *([f"[dim]{number(cell['paper'])}[/dim]"] if has_paper else []),
                    from_first(cell["from_first"])
                    if cell["from_first"]
                    else signed(cell["difference"]) + "*" * bool(cell["notes"]),
                ]
            )
            for cell in row["cells"]
        ]
        drawn.add_row(row["name"], *cells, "; ".join(describe_row(row)) or row["why"])
    legend = "Ours, the paper's, the difference; * not directly comparable, see the page."
    if not has_paper:
        legend = "Below each accuracy the difference from the first row on the same tasks."
    drawn.caption = f"{describe_table(result)} {legend}"
    Console().print(drawn)
