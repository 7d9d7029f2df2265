"""psco suggest: which pictures of a folder to label first."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Annotated

import typer

from psco.cli.common import OUTPUT, Debug, Device, Json, Raw, command, exit_if_failed, print_note
from psco.errors import InputError, counted, printable


@command
def suggest(
    model: Annotated[
        Path, typer.Argument(help="Run folder, .psco classifier or built-in encoder.")
    ],
    pictures: Annotated[Path, typer.Argument(help="Folder of pictures.")],
    budget: Annotated[int, typer.Option(help="How many pictures to label.")] = 40,
    labels: Annotated[
        Path | None,
        typer.Option(
            help="Labels so far: .csv file or session folder.",
            show_default="the session in the folder",
        ),
    ] = None,
    out: Annotated[
        Path | None, typer.Option("--csv", help="Write a .csv file.", rich_help_panel=OUTPUT)
    ] = None,
    to: Annotated[
        Path | None,
        typer.Option(help="New folder for the suggested pictures.", rich_help_panel=OUTPUT),
    ] = None,
    how: Annotated[
        str, typer.Option(help="copy or link the pictures into it.", rich_help_panel=OUTPUT)
    ] = "copy",
    raw: Raw = False,
    device: Device = "auto",
    as_json: Json = False,
    debug: Debug = False,
) -> None:
    """List the pictures that are most worth a label, the most useful first.

    These are pictures typical of a cluster; given labels, also uncertain ones and ones far from
    every class. Nothing is written beside the pictures. Exits with 1 if some pictures cannot be
    decoded; these are left out.
    """
    from psco.classifier.results import open_csv, safe_cell
    from psco.files.atomic import atomic_path
    from psco.labelling.files import place_files
    from psco.labelling.reading import look_at
    from psco.progress import Bar

    if budget < 1:
        raise InputError(f"--budget must be at least 1, got {budget}")
    if how not in ("copy", "link"):
        raise InputError(f"--how must be copy or link, not {how!r}")
    with look_at(model, pictures, labels, device) as session:
        with Bar("embed") as bar:
            session.embed(lambda done, total: bar.update(done / total))
        found = [(session.names[each.number], each.reason) for each in session.suggest(budget)]
        broken = {session.names[number]: why for number, why in session.broken.items()}
        total = len(session.names)
    for name, why in broken.items():
        print_note(printable(f"left out: {name}: {why}"))
    if to is not None:
        place_files(
            to, pictures, {name: name for name, _ in found}, "link" if how == "link" else "copy"
        )
        print_note(f"{to}: {counted(len(found), 'picture')}")
    if out is not None:
        with atomic_path(out) as aside, open_csv(aside) as file:
            writer = csv.writer(file)
            writer.writerow(("path", "reason"))
            writer.writerows([name if raw else safe_cell(name), why] for name, why in found)
    if as_json:
        typer.echo(json.dumps([{"path": name, "reason": why} for name, why in found]))
    elif out is not None:
        typer.echo(f"{out}: {counted(len(found), 'picture')}")
    else:
        for name, why in found:
            typer.echo(f"{printable(name)}\t{why}")
    exit_if_failed(len(broken), total)
