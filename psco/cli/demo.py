"""psco demo: the whole library in a few minutes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from psco.cli.common import Debug, Json, command, print_note, print_results


@command
def demo(
    out: Annotated[Path, typer.Option("--out", "-o", help="Run folder to write.")] = Path(
        "runs/demo"
    ),
    steps: Annotated[
        int | None, typer.Option(help="Training steps.", show_default="the recipe's")
    ] = None,
    tasks: Annotated[int, typer.Option(help="Test tasks per setting.")] = 1000,
    seed: Annotated[int, typer.Option(help="Seed of training and tasks.")] = 0,
    as_json: Json = False,
    debug: Debug = False,
) -> None:
    """Train on the built-in glyphs, compare with two baselines, write a report.

    An interrupted demo continues where it stopped; a finished one only rewrites its report.
    """
    from psco.experiments.demo import run_demo

    results = run_demo(out, steps=steps, tasks=tasks, seed=seed)
    if as_json:
        typer.echo(json.dumps(results))
        return
    print_results(results["results"], "Accuracy on unseen classes, in %")
    for quality in results["open_set"]:
        typer.echo(
            f"{quality['ways']}-way {quality['shots']}-shot: calibration error "
            f"{quality['calibration_error']:.3f}, AUROC of rejection {quality['auroc']:.3f}"
        )
    print_note(f"report: {out / 'report.html'}")
