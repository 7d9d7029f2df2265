"""psco views: a picture of what a recipe's views do to images."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from psco.cli.common import Debug, Json, RecipeName, Root, Settings, Split, command, print_note


@command
def views(
    data: Annotated[str, typer.Argument(help="Data set name or folder of images.")],
    out: Annotated[Path, typer.Option("--out", "-o", help="Picture to write (.png).")],
    recipe: RecipeName = None,
    images: Annotated[int, typer.Option(help="Number of images, one per row.")] = 8,
    number: Annotated[int, typer.Option("--views", help="Samples of each of the two views.")] = 6,
    seed: Annotated[int, typer.Option(help="Seed of images and views.")] = 0,
    settings: Settings = None,
    split: Split = "train",
    root: Root = None,
    as_json: Json = False,
    debug: Debug = False,
) -> None:
    """Draw samples of a recipe's views beside the original images."""
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
        print_note(f"note: {note}")
    if as_json:
        typer.echo(json.dumps({"sheet": str(out), "blank": sheet.blank}))
    else:
        blank = ", ".join(f"{fraction:.1%} of {name}" for name, fraction in sheet.blank.items())
        typer.echo(f"{out}: views of a single colour: {blank}")
