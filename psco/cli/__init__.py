"""The command line: one file per command, each a thin layer over public functions.

Results go to stdout, everything else to stderr. Exit codes: 0 success, 1 failure or interruption,
2 bad input. Commands import what they need when they run, so that ``psco --help`` is fast.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from typing import Annotated

import typer

from psco.cli import (
    card,
    classify,
    compare,
    data,
    demo,
    doctor,
    draw,
    embed,
    evaluate,
    export,
    fit,
    label,
    methods,
    models,
    pretrain,
    recipes,
    report,
    reproduce,
    serve,
    similar,
    suggest,
    views,
)
from psco.cli.common import repeat_flags
from psco.version import __version__

app = typer.Typer(
    name="psco",
    help="Few-shot classifiers from unlabelled images (PsCo).",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)

_PANELS: dict[str, tuple[Callable[..., None], ...]] = {
    "Train": (demo.demo, pretrain.pretrain, views.views, recipes.recipes, methods.methods),
    "Label": (label.label, suggest.suggest, similar.similar),
    "Classify": (fit.fit, classify.classify, embed.embed, models.models),
    "Ship": (export.export, serve.serve, draw.draw, card.card),
    "Measure": (evaluate.evaluate, compare.compare, report.report, reproduce.reproduce),
    "Set up": (doctor.doctor,),
}
for _panel, _commands in _PANELS.items():
    for _command in _commands:
        app.command(rich_help_panel=_panel)(_command)
app.add_typer(data.app, rich_help_panel="Set up")


def _print_version(requested: bool) -> None:
    if requested:
        typer.echo(__version__)
        raise typer.Exit


@app.callback()
def _root(
    version: Annotated[
        bool,
        typer.Option(
            "--version", callback=_print_version, is_eager=True, help="Print the version."
        ),
    ] = False,
) -> None:
    pass


def main() -> None:
    """Run the program ``psco``."""
    # By default a waiting OpenMP thread spins for about 0.1 ms, then sleeps. Longer spinning is
    # faster on an idle machine, but several times slower on a busy one.
    if "OMP_WAIT_POLICY" not in os.environ:
        os.environ.setdefault("GOMP_SPINCOUNT", "3000")
    app(repeat_flags(sys.argv[1:]), prog_name="psco")
