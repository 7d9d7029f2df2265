"""The command that measures speed: bench."""

from __future__ import annotations

import json
from typing import Annotated

import typer

from psco.cli.common import Debug, Json, for_people


@for_people
def bench(
    parts: Annotated[
        list[str] | None,
        typer.Option(help="Of step, naive, limit, evaluate, growth, start.", show_default="all"),
    ] = None,
    repeats: Annotated[
        int | None, typer.Option(help="Turns of every side.", show_default="7")
    ] = None,
    steps: Annotated[
        int | None, typer.Option(help="Training steps in a turn.", show_default="9")
    ] = None,
    quick: Annotated[
        bool, typer.Option("--quick", help="Toy sizes: does it run? The numbers mean nothing.")
    ] = False,
    as_json: Json = False,
    debug: Debug = False,
) -> None:
    """Measure speed on this machine: training, evaluation, growth, start."""
    from benchmarks.speed.measure import run_bench
    from benchmarks.speed.plan import make_plan

    findings = run_bench(make_plan(tuple(parts or ()), repeats, steps, quick))
    if as_json:
        typer.echo(json.dumps(findings.as_dict()))
        return
    from rich.console import Console
    from rich.table import Table

    table = Table("measured", "median", "spread", title="psco bench")
    for row in findings.rows():
        table.add_row(*row)
    Console().print(table)
