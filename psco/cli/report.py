"""psco report: train a recipe with several seeds and test it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from psco.cli.common import (
    TASKS,
    Debug,
    Json,
    RecipeName,
    Root,
    Settings,
    Shots,
    TaskCount,
    Ways,
    command,
    print_note,
    print_results,
    read_ways,
)


@command
def report(
    data: Annotated[str, typer.Argument(help="Name of a data set with a test split.")],
    out: Annotated[
        Path | None,
        typer.Option(
            "--out",
            "-o",
            help="Folder for the runs and the report.",
            show_default="runs/RECIPE",
        ),
    ] = None,
    recipe: RecipeName = None,
    seeds: Annotated[list[int], typer.Option(help="Seeds of training.")] = [0, 1, 2],  # noqa: B006
    settings: Settings = None,
    root: Root = None,
    rules: Annotated[
        str | None,
        typer.Option(
            help="Classification rules, separated by commas.",
            show_default="the method's",
            rich_help_panel=TASKS,
        ),
    ] = None,
    split: Annotated[
        str, typer.Option(help="Split to test on: test, or val.", rich_help_panel=TASKS)
    ] = "test",
    ways: Ways = ["5", "20"],  # noqa: B006
    shots: Shots = [1, 5],  # noqa: B006
    tasks: TaskCount = 2000,
    task_seed: Annotated[int, typer.Option(help="Seed of the tasks.", rich_help_panel=TASKS)] = 0,
    as_json: Json = False,
    debug: Debug = False,
) -> None:
    """Train a recipe with several seeds, test it, write OUT/report.json.

    An interrupted report continues where it stopped; a finished one only tests again.
    """
    from psco.experiments.recipe_report import REPORT, report_recipe
    from psco.recipes.recipe import default_recipe

    folder = out or Path("runs") / Path(recipe or default_recipe(data)).stem
    found = report_recipe(
        data,
        out=folder,
        recipe=recipe,
        seeds=seeds,
        overrides=settings or [],
        rules=[name.strip() for name in (rules or "").split(",") if name.strip()],
        split=split,
        ways=read_ways(ways),
        shots=shots,
        tasks=tasks,
        task_seed=task_seed,
        root=root,
    )
    if found is None:
        print_note(f"stopped; the same command continues the runs in {folder}")
        raise typer.Exit(1)
    if as_json:
        typer.echo(json.dumps(found))
        return
    single = [{"name": f"seed {row['training_seed']}", **row} for row in found["results"]]
    means = [{"name": "mean", **row} for row in found["mean"]]
    rows = [{**row, "method": f"{row['name']}, {row['rule']}"} for row in single + means]
    print_results(rows, f"{data} ({split}): accuracy in %")
    print_note(f"report: {folder / REPORT}")
