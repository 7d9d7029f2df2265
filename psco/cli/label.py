"""psco label: label a folder of pictures in the browser."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from psco.cli.common import Debug, Device, command, print_note
from psco.errors import InputError, import_optional, quoted


@command
def label(
    model: Annotated[
        str,
        typer.Argument(
            help="Run folder, .psco classifier or built-in encoder (see `psco models`). "
            "`psco label PICTURES` alone says which to take.",
        ),
    ],
    pictures: Annotated[
        Path | None, typer.Argument(help="Folder of pictures, at any depth.", show_default=False)
    ] = None,
    labels: Annotated[
        list[Path] | None,
        typer.Option(
            help="CSV file with labels to begin with; repeatable, such as one for each person."
        ),
    ] = None,
    session: Annotated[
        Path | None,
        typer.Option(help="Folder that keeps the labels.", show_default="in PICTURES"),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(help="Folder for exports.", show_default="PICTURES-labelled"),
    ] = None,
    no_browser: Annotated[
        bool, typer.Option("--no-browser", help="Only print the address of the page.")
    ] = False,
    port: Annotated[int, typer.Option(help="Port of the page.", show_default="a free one")] = 0,
    host: Annotated[
        str,
        typer.Option(
            help="Address to listen on. Any other than the default lets other machines connect; "
            "who knows the address with its token can label.",
        ),
    ] = "127.0.0.1",
    device: Device = "auto",
    debug: Debug = False,
) -> None:
    """Label a folder of pictures in the browser.

    Labels are kept as they are given; start again with the same words to go on. Ctrl-C ends it.
    """
    if pictures is None:
        _advise(model)
        return
    import_optional("starlette.applications", "app")
    import_optional("uvicorn", "app")
    from psco.labelling import Labelling
    from psco.server.guard import is_loopback
    from psco.server.labelling.run import run_label_page

    if not is_loopback(host):
        print_note(f"warning: listening on {host}: the page is sent without encryption")
    with Labelling(model, pictures, session, labels, device) as opened:
        for conflict in opened.conflicts:
            given = " and ".join(
                f"{quoted(text)} in {file}" for file, text in conflict.labels.items()
            )
            print_note(f"warning: {quoted(conflict.picture)} is {given}; it gets no label")
        folder = out or pictures.resolve().with_name(f"{pictures.resolve().name}-labelled")
        run_label_page(
            opened,
            folder,
            host=host,
            port=port,
            browser=not no_browser,
            on_address=lambda place: typer.echo(f"Open {place} (Ctrl-C ends)"),
        )
    print_note(f"labels are kept in {opened.session}")


def _advise(path: str) -> None:
    """Print which model fits a folder of pictures, and why."""
    from psco.recipes.model_advice import advise_model

    if not Path(path).is_dir():
        raise InputError(
            f"psco label needs a model and a folder of pictures, got only {quoted(path)}, which is "
            f"not a folder; psco models lists the built-in encoders"
        )
    typer.echo(advise_model(path))
