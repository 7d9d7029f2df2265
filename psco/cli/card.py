"""psco card: describe a run folder, so that it can be shared."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from psco.cli.common import Debug, command, print_note


@command
def card(
    run: Annotated[Path, typer.Argument(help="Run folder.")],
    evaluation: Annotated[
        list[Path] | None,
        typer.Option(help="Output of psco evaluate RUN --json; repeatable."),
    ] = None,
    licence: Annotated[
        str, typer.Option(help="Licence of the weights: mit, cc-by-4.0, apache-2.0, ...")
    ] = "unknown",
    name: Annotated[
        str | None, typer.Option(help="Title of the card.", show_default="the folder's name")
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Replace the card that is there.")] = False,
    debug: Debug = False,
) -> None:
    """Write README.md into a run folder: data, command, seed, checksum, accuracies.

    The folder can then be shared as it is, such as on the Hugging Face Hub.
    """
    from psco.report.card import UNKNOWN_LICENCE, write_card

    path = write_card(run, evaluation, licence=licence, name=name, force=force)
    if licence == UNKNOWN_LICENCE:
        print_note("note: the licence is unknown; --licence mit states one")
    typer.echo(str(path))
