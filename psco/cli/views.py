"""The command that shows what views do to images."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from psco.cli.common import Debug, Json, Root, for_people, say


@for_people
def views(
    data: Annotated[str, typer.Argument(help="Data set name or folder of images.")],
    out: Annotated[Path, typer.Option("--out", "-o", help="Picture to write (.png).")],
    recipe: Annotated[str | None, typer.Option(help="Recipe name or YAML file.")] = None,
    images: Annotated[int, typer.Option(help="Rows: images drawn from the data.")] = 8,
    number: Annotated[int, typer.Option("--views", help="Samples of each of the two views.")] = 6,
    seed: Annotated[int, typer.Option(help="Decides images and views.")] = 0,
    settings: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="A.B=C", help="Change a setting of the recipe."),
    ] = None,
    split: Annotated[str, typer.Option(help="train, val or test of a named data set.")] = "train",
    root: Root = None,
    as_json: Json = False,
    debug: Debug = False,
) -> None:
    """Draw what a recipe's views do to images, beside the originals."""
    from psco.report.viewsheet import check_format, view_sheet

    check_format(out)
    sheet = view_sheet(
        data,
        recipe=recipe,
        overrides=settings or [],
        images=images,
        views=number,
        seed=seed,
        split=split,
        root=root,
    )
    sheet.save(out)
    for note in sheet.notes:
        say(f"note: {note}")
    if as_json:
        typer.echo(json.dumps({"sheet": str(out), "blank": sheet.blank}))
    else:
        shares = ", ".join(f"{share:.1%} of {name}" for name, share in sheet.blank.items())
        typer.echo(f"{out}: views of one colour: {shares}")
