"""psco embed: the features of image files, for other tools."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from psco.cli.common import Debug, Device, Images, Json, Raw, command, exit_if_failed, print_note
from psco.errors import counted, printable


@command
def embed(
    run: Annotated[Path, typer.Argument(help="Run folder or built-in encoder, see `psco models`.")],
    images: Images,
    out: Annotated[
        Path, typer.Option("--out", "-o", help="File to write: .npz, .npy, .csv or .parquet.")
    ],
    raw: Raw = False,
    device: Device = "auto",
    as_json: Json = False,
    debug: Debug = False,
) -> None:
    """Write the features of images, for other tools.

    An .npz file holds the arrays names, features, support, query and, if there is one folder per
    class, labels; .npy holds the features, .csv and .parquet a table. Exits with 1 if some images
    cannot be decoded; these are left out.
    """
    from psco.classifier.bulk import embed_files, list_image_files
    from psco.classifier.results import check_feature_file, write_features
    from psco.evaluation.embed import load

    check_feature_file(out)
    listing = list_image_files(images)
    embedded = embed_files(load(run), listing, device=device, progress=True)
    write_features(out, embedded, raw=raw)
    for path, error in embedded.errors.items():
        print_note(printable(f"left out: {path}: {error}"))
    width = embedded.embeddings.features.shape[1]
    result = {"features": str(out), "images": len(embedded.names), "width": width}
    if as_json:
        typer.echo(json.dumps({**result, "failed": embedded.errors}))
    else:
        typer.echo(f"{out}: {counted(len(embedded.names), 'image')}, {counted(width, 'feature')}")
    exit_if_failed(len(embedded.errors), len(listing))
