"""psco similar: the pictures of a folder that look most like another one."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from psco.cli.common import Debug, Device, Json, command, print_note
from psco.errors import InputError, printable


@command
def similar(
    model: Annotated[
        Path, typer.Argument(help="Run folder, .psco classifier or built-in encoder.")
    ],
    pictures: Annotated[Path, typer.Argument(help="Folder of pictures.")],
    query: Annotated[Path, typer.Argument(help="Image file to compare with.")],
    count: Annotated[int, typer.Option(help="How many pictures to list.")] = 20,
    device: Device = "auto",
    as_json: Json = False,
    debug: Debug = False,
) -> None:
    """List the pictures most similar to another one, with similarities from 0 to 1."""
    from psco.labelling.reading import look_at
    from psco.progress import Bar

    if count < 1:
        raise InputError(f"--count must be at least 1, got {count}")
    with look_at(model, pictures, device=device) as session:
        with Bar("embed") as bar:
            session.embed(lambda done, total: bar.update(done / total))
        found = [(session.names[n], value) for n, value in session.similar(query, count)]
        for number, why in session.broken.items():
            print_note(printable(f"left out: {session.names[number]}: {why}"))
    if as_json:
        typer.echo(json.dumps([{"path": name, "similarity": value} for name, value in found]))
    else:
        for name, value in found:
            typer.echo(f"{value:.3f}\t{printable(name)}")
