"""The command line: parse, call the public function of the same name, print what it gives.

Results go to stdout, everything else to stderr. Exit codes: 0 done, 1 failed or interrupted,
2 bad input. Nothing heavy is imported before a command runs, so that help answers at once.
"""

from __future__ import annotations

import os
import sys
from typing import Annotated

import typer

from psco.cli.common import spread_lists
from psco.cli.comparing import compare, methods
from psco.cli.data import app as data
from psco.cli.doctor import doctor
from psco.cli.testing import evaluate
from psco.cli.training import demo, pretrain, report
from psco.cli.using import classify, embed, fit
from psco.cli.views import views
from psco.version import __version__

app = typer.Typer(
    name="psco",
    help="Few-shot classifiers from unlabelled images (PsCo).",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
for command in (
    demo,
    views,
    pretrain,
    evaluate,
    report,
    methods,
    compare,
    fit,
    classify,
    embed,
    doctor,
):
    app.command()(command)
app.add_typer(data)


def _version(show: bool) -> None:
    if show:
        typer.echo(__version__)
        raise typer.Exit


@app.callback()
def _root(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    pass


def main() -> None:
    """Run the program ``psco``."""
    # Threads of torch that wait for one another spin for some 0.1 ms, then sleep. Spinning on is
    # quicker on a machine that does nothing else, and several times slower on one that does.
    if "OMP_WAIT_POLICY" not in os.environ:
        os.environ.setdefault("GOMP_SPINCOUNT", "3000")
    app(spread_lists(sys.argv[1:]), prog_name="psco")
