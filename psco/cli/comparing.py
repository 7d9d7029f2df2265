"""Commands about several methods: methods and compare."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from psco.cli.common import Debug, Json, Root, for_people
from psco.errors import InputError

if TYPE_CHECKING:
    from psco.evaluation.compare import Comparison

_UNITS = {"s": 1 / 60, "m": 1.0, "h": 60.0}


@for_people
def methods(as_json: Json = False, debug: Debug = False) -> None:
    """List the training methods."""
    from psco.methods import METHODS

    facts = [
        {
            "name": name,
            "title": method.title,
            "kind": method.kind,
            "protocol": method.protocol,
            "rule": method.rule,
            "paper": method.paper,
            "summary": method.summary,
        }
        for name in METHODS
        for method in [METHODS[name]]
    ]
    if as_json:
        typer.echo(json.dumps(facts))
        return
    from rich.console import Console
    from rich.table import Table

    table = Table("name", "kind", "protocol", "what it does", "published", title="Methods")
    for fact in facts:
        table.add_row(*(fact[key] for key in ("name", "kind", "protocol", "summary", "paper")))
    Console().print(table)


@for_people
def compare(
    runs: Annotated[
        list[Path] | None, typer.Argument(help="Run folders; the first is the reference.")
    ] = None,
    data: Annotated[
        str | None, typer.Option(help="Data set name or folder with a folder per class.")
    ] = None,
    root: Root = None,
    split: Annotated[str, typer.Option(help="train, val or test of a named data set.")] = "test",
    ways: Annotated[list[int], typer.Option(help="Classes in a task.")] = [5],  # noqa: B006
    shots: Annotated[list[int], typer.Option(help="Supports of a class.")] = [1],  # noqa: B006
    queries: Annotated[int, typer.Option(help="Queries of a class.")] = 15,
    tasks: Annotated[int, typer.Option(help="Number of tasks.")] = 2000,
    slow_tasks: Annotated[
        int, typer.Option(help="Of these, for rules that train a network on every task.")
    ] = 100,
    task_seed: Annotated[int, typer.Option(help="Decides the tasks.")] = 0,
    train: Annotated[
        bool, typer.Option("--train", help="Train the methods first, in --out.")
    ] = False,
    train_data: Annotated[
        str | None,
        typer.Option(help="With --train: what to train on, if not the training split of --data."),
    ] = None,
    methods: Annotated[
        str, typer.Option(help="With --train: methods, separated by commas.")
    ] = "psco,moco,simclr,swav",
    budget: Annotated[
        str | None, typer.Option(help="With --train: time for each, such as 10m or 1h.")
    ] = None,
    steps: Annotated[int | None, typer.Option(help="With --train: steps for each.")] = None,
    recipe: Annotated[str | None, typer.Option(help="With --train: recipe of all.")] = None,
    seed: Annotated[int, typer.Option(help="With --train: seed of training.")] = 0,
    settings: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="A.B=C", help="With --train: change a setting of all."),
    ] = None,
    out: Annotated[
        Path | None, typer.Option("--out", "-o", help="With --train: folder of the runs.")
    ] = None,
    markdown: Annotated[Path | None, typer.Option(help="Also write the table here.")] = None,
    html: Annotated[Path | None, typer.Option(help="Also write a page with bars.")] = None,
    as_json: Json = False,
    debug: Debug = False,
) -> None:
    """Compare runs on the same tasks, or train methods on the same budget and compare them."""
    from psco.data import has_splits
    from psco.evaluation.compare import compare as compare_runs

    if data is None:
        raise InputError("--data is missing: what to test on, such as --data glyphs")
    folders = list(runs or [])
    if train:
        if folders:
            raise InputError(f"--train trains its own runs; leave out {str(folders[0])!r}")
        if out is None:
            raise InputError("--out is missing: the folder of the runs, such as --out runs/rivals")
        from psco.experiments.suite import train_methods

        minutes = None if budget is None else _minutes(budget)
        names = [name.strip() for name in methods.split(",") if name.strip()]
        source = data if train_data is None else train_data
        if source == data and not has_splits(data):
            typer.echo(
                f"{data!r} has no splits: every method is tested on the images that it was trained "
                f"on, which flatters those that see labels; give others with --train-data",
                err=True,
            )
        trained = train_methods(
            source, names, out, minutes, steps, seed, recipe, settings or [], root
        )
        folders = [run.folder for run in trained]
        trained[-1].require_finished("the same command")
    comparison = compare_runs(
        folders,
        data,
        [(w, k) for w in ways for k in shots],
        split,
        root,
        queries,
        tasks,
        slow_tasks,
        task_seed,
        progress=True,
    )
    _write(comparison, markdown, html)
    if as_json:
        typer.echo(json.dumps(comparison.as_dict()))
    else:
        _print(comparison)


def _minutes(text: str) -> float:
    match = re.fullmatch(r"(\d+(?:\.\d+)?)([smh])", text)
    if not match or float(match[1]) <= 0:
        raise InputError(f"--budget takes a time such as 90s, 10m or 1h, not {text!r}")
    return float(match[1]) * _UNITS[match[2]]


def _write(comparison: Comparison, markdown: Path | None, html: Path | None) -> None:
    from psco.files.atomic import atomic_path
    from psco.report.compared import comparison_page, to_markdown

    for path, write in ((markdown, to_markdown), (html, comparison_page)):
        if path is not None:
            with atomic_path(path) as aside:
                aside.write_text(write(comparison))


def _print(comparison: Comparison) -> None:
    from rich.console import Console
    from rich.table import Table

    from psco.report.compared import LEGEND, table

    head, rows = table(comparison)
    drawn = Table(*head, title=f"{comparison.data} ({comparison.split})", caption=LEGEND)
    for row in rows:
        drawn.add_row(*row)
    Console().print(drawn)
