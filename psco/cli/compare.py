"""psco compare: several runs on the same tasks."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from psco.cli.common import (
    OUTPUT,
    TASKS,
    Debug,
    Json,
    Queries,
    Root,
    Shots,
    Split,
    TaskCount,
    Ways,
    command,
    print_note,
    read_ways,
    write_page,
)
from psco.errors import InputError

if TYPE_CHECKING:
    from psco.evaluation.compare import Comparison

_MINUTES = {"s": 1 / 60, "m": 1.0, "h": 60.0}
_TRAINING = "Training (with --train)"


@command
def compare(
    runs: Annotated[
        list[Path] | None,
        typer.Argument(help="Run folders and built-in encoders; the first is the reference."),
    ] = None,
    data: Annotated[
        str | None, typer.Option(help="Data set, or a folder with one folder per class.")
    ] = None,
    root: Root = None,
    split: Split = "test",
    train: Annotated[
        bool, typer.Option("--train", help="First train the methods, in --out.")
    ] = False,
    ways: Ways = ["5"],  # noqa: B006
    shots: Shots = [1],  # noqa: B006
    queries: Queries = 15,
    tasks: TaskCount = 2000,
    slow_tasks: Annotated[
        int,
        typer.Option(
            help="Tasks for rules that train a network on each task.", rich_help_panel=TASKS
        ),
    ] = 100,
    task_seed: Annotated[int, typer.Option(help="Seed of the tasks.", rich_help_panel=TASKS)] = 0,
    methods: Annotated[
        str, typer.Option(help="Methods, separated by commas.", rich_help_panel=_TRAINING)
    ] = "psco,moco,simclr,swav",
    out: Annotated[
        Path | None, typer.Option("--out", "-o", help="Folder of runs.", rich_help_panel=_TRAINING)
    ] = None,
    train_data: Annotated[
        str | None,
        typer.Option(
            help="Images to train on.",
            show_default="the training split of --data",
            rich_help_panel=_TRAINING,
        ),
    ] = None,
    budget: Annotated[
        str | None,
        typer.Option(help="Time per method, such as 10m or 1h.", rich_help_panel=_TRAINING),
    ] = None,
    steps: Annotated[
        int | None, typer.Option(help="Steps per method.", rich_help_panel=_TRAINING)
    ] = None,
    recipe: Annotated[
        str | None, typer.Option(help="Recipe for all methods.", rich_help_panel=_TRAINING)
    ] = None,
    seed: Annotated[int, typer.Option(help="Seed of training.", rich_help_panel=_TRAINING)] = 0,
    settings: Annotated[
        list[str] | None,
        typer.Option(
            "--set", metavar="A.B=C", help="Change a setting for all.", rich_help_panel=_TRAINING
        ),
    ] = None,
    markdown: Annotated[
        Path | None, typer.Option(help="Also write Markdown tables.", rich_help_panel=OUTPUT)
    ] = None,
    html: Annotated[
        Path | None, typer.Option(help="Also write a page with plots.", rich_help_panel=OUTPUT)
    ] = None,
    as_json: Json = False,
    debug: Debug = False,
) -> None:
    """Compare runs on the same tasks, or train methods on an equal budget and compare them."""
    from psco.data import has_splits
    from psco.evaluation.compare import compare as compare_runs

    if data is None:
        raise InputError("--data is missing: the images to test on, such as --data glyphs")
    folders = list(runs or [])
    if train:
        if folders:
            raise InputError(f"--train takes no run folders; leave out {str(folders[0])!r}")
        if out is None:
            raise InputError("--out is missing: the folder of the runs, such as --out runs/rivals")
        from psco.experiments.suite import train_methods

        minutes = None if budget is None else _minutes(budget)
        names = [name.strip() for name in methods.split(",") if name.strip()]
        source = data if train_data is None else train_data
        if source == data and not has_splits(data):
            print_note(
                f"note: {data!r} has no splits, so every method is tested on its training images, "
                f"which favours methods that use labels; --train-data takes other images"
            )
        trained = train_methods(
            source, names, out, minutes, steps, seed, recipe, settings or [], root
        )
        folders = [run.folder for run in trained]
        trained[-1].require_finished("the same command")
    comparison = compare_runs(
        folders,
        data,
        [(w, k) for w in read_ways(ways) for k in shots],
        split,
        root,
        queries,
        tasks,
        slow_tasks,
        task_seed,
        progress=True,
    )
    from psco.report.compared import comparison_page, to_markdown

    if markdown is not None:
        write_page(markdown, to_markdown(comparison))
    if html is not None:
        write_page(html, comparison_page(comparison))
    if as_json:
        typer.echo(json.dumps(comparison.as_dict()))
    else:
        _print_table(comparison)


def _minutes(text: str) -> float:
    match = re.fullmatch(r"(\d+(?:\.\d+)?)([smh])", text)
    if not match or float(match[1]) <= 0:
        raise InputError(f"--budget takes a time such as 90s, 10m or 1h, not {text!r}")
    return float(match[1]) * _MINUTES[match[2]]


def _print_table(comparison: Comparison) -> None:
    from rich.console import Console
    from rich.table import Table

    from psco.report.compared import LEGEND, table

    head, rows = table(comparison)
    printed = Table(*head, title=f"{comparison.data} ({comparison.split})", caption=LEGEND)
    for row in rows:
        printed.add_row(*row)
    Console().print(printed)
