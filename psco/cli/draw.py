"""psco draw: a page that learns characters from drawings."""

from __future__ import annotations

import webbrowser
from pathlib import Path
from typing import Annotated

import typer

from psco.cli.common import Debug, Json, command
from psco.cli.export import print_file


@command
def draw(
    out: Annotated[
        Path, typer.Option("--out", "-o", help="Page to write; it works without psco.")
    ] = Path("draw.html"),
    open_page: Annotated[
        bool, typer.Option("--open/--no-open", help="Open the page in a browser.")
    ] = True,
    as_json: Json = False,
    debug: Debug = False,
) -> None:
    """Open a page that learns to tell your drawings apart, from one of each.

    The page is psco export handwriting draw.html: one file without a server or a network.
    """
    from psco.evaluation.embed import load
    from psco.export.page import write_page

    facts = write_page(load("handwriting"), out)
    print_file(out, facts.summary(), facts._asdict(), as_json)
    if open_page:
        webbrowser.open(out.resolve().as_uri())
