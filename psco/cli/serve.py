"""psco serve: a classifier over HTTP."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from psco.cli.common import Debug, Device, command, print_note
from psco.errors import InputError, counted, import_optional

LIMITS = "Limits"
CONNECTIONS = 256  # at once; further ones are refused


@command
def serve(
    classifier: Annotated[Path, typer.Argument(help="Classifier: .psco or .onnx file.")],
    host: Annotated[str, typer.Option(help="Address to listen on.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(help="Port to listen on; 0 chooses a free one.")] = 8000,
    token: Annotated[
        str | None,
        typer.Option(
            help="Answer only requests with this token; 'auto' makes one.",
            show_default="none on this machine, else auto",
        ),
    ] = None,
    no_token: Annotated[
        bool, typer.Option("--no-token", help="Answer anyone who can reach the address.")
    ] = False,
    draw: Annotated[
        bool,
        typer.Option(
            "--draw", help="Also serve the page of psco export; it contains network and examples."
        ),
    ] = False,
    max_megabytes: Annotated[
        float, typer.Option(min=0.001, help="Largest request.", rich_help_panel=LIMITS)
    ] = 20.0,
    max_pictures: Annotated[
        int, typer.Option(min=1, help="Most pictures in a request.", rich_help_panel=LIMITS)
    ] = 64,
    device: Device = "auto",
    debug: Debug = False,
) -> None:
    """Answer requests with pictures: labels, probabilities, unknown.

    The address is printed, with the token if there is one; Ctrl-C stops the server.
    """
    import_optional("starlette", "app")
    import_optional("python_multipart", "app")
    from psco.server.guard import Guard
    from psco.server.listen import address, listen, run_app
    from psco.server.serve.app import Service
    from psco.server.serve.bodies import ServeLimits
    from psco.server.serve.model import open_model

    token = choose_token(host, token, no_token)
    model = open_model(classifier, device)
    limits = ServeLimits(body_bytes=round(max_megabytes * 1e6), pictures=max_pictures)
    page = _drawing_page(classifier) if draw else None
    service = Service(model, limits, classifier.stem, page)
    listening = listen(host, port)
    place = address(listening, token)
    print_note(f"{classifier}: {counted(len(model.classes), 'class')}; Ctrl-C stops the server")
    run_app(
        Guard(service.app(), token, host),
        listening,
        on_ready=lambda: typer.echo(place),
        connections=CONNECTIONS,
    )


def _drawing_page(classifier: Path) -> str:
    from psco.classifier import FewShotClassifier
    from psco.export.page import page_html

    if classifier.suffix.lower() == ".onnx":
        raise InputError("--draw needs the examples, which an .onnx file has none of; use a .psco")
    return page_html(FewShotClassifier.load(classifier), classifier.stem)[0]


def choose_token(host: str, given: str | None, no_token: bool) -> str | None:
    """Return the token that requests need: a new one if other machines reach the address."""
    from psco.server.guard import is_loopback, new_token

    if no_token and given is not None:
        raise InputError("--token and --no-token exclude each other")
    if given == "auto" or (given is None and not no_token and not is_loopback(host)):
        return new_token()
    return given
