"""psco export: an encoder or a classifier as a file for other programs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from psco.cli.common import Debug, Json, command
from psco.errors import InputError, quoted

if TYPE_CHECKING:
    from psco.classifier import FewShotClassifier
    from psco.evaluation.embed import Encoder

SUFFIXES = (".html", ".onnx")


@command
def export(
    source: Annotated[
        Path,
        typer.Argument(help="Classifier file, run folder or built-in encoder (`psco models`)."),
    ],
    out: Annotated[Path, typer.Argument(help="File to write: page.html or model.onnx.")],
    int8: Annotated[
        bool, typer.Option("--int8", help="ONNX: weights in 8 bits, a quarter of the size.")
    ] = False,
    views_at_test: Annotated[
        int | None,
        typer.Option(
            min=0, help="ONNX: random views averaged with each picture.", show_default="the run's"
        ),
    ] = None,
    as_json: Json = False,
    debug: Debug = False,
) -> None:
    """Write an encoder or a classifier as one file that runs without psco.

    A page works from a double click: it classifies drawings and pictures, and learns from them.
    """
    if out.suffix.lower() not in SUFFIXES:
        raise InputError(
            f"psco export writes files that end in {' or '.join(SUFFIXES)}, not {quoted(out)}"
        )
    if out.suffix.lower() == ".html":
        if int8 or views_at_test is not None:
            raise InputError("--int8 and --views-at-test are for .onnx files, not for a page")
        from psco.export.page import write_page

        page = write_page(_open(source), out, source.stem if source.is_file() else "")
        print_file(out, page.summary(), page._asdict(), as_json)
        return
    from psco.export.onnx.writing import write_onnx

    facts = write_onnx(_open(source), out, int8=int8, views_at_test=views_at_test)
    print_file(out, facts.summary(), facts.model_dump(mode="json"), as_json)


def _open(source: Path) -> Encoder | FewShotClassifier:
    """Return the classifier in a file, or the encoder of a run folder or of a name."""
    from psco.classifier import FewShotClassifier
    from psco.evaluation.embed import load

    return FewShotClassifier.load(source) if source.is_file() else load(source)


def print_file(out: Path, summary: str, facts: dict[str, Any], as_json: bool) -> None:
    """Print what was written: the file, its size and what it was made from."""
    size = out.stat().st_size
    if as_json:
        typer.echo(json.dumps({"file": str(out), "bytes": size, **facts}))
    else:
        typer.echo(f"{out}: {summary}, {size / 1e6:.1f} MB")
