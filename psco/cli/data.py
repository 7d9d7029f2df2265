"""psco data: list, describe, prepare, verify and download data sets, and check own images."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

import typer

from psco.cli.common import Debug, Json, Root, command, print_note

app = typer.Typer(name="data", help="List, check, prepare and download data sets.")

Name = Annotated[str, typer.Argument(help="Name of a data set, see `psco data list`.")]


@app.command("list")
@command
def list_(root: Root = None, as_json: Json = False, debug: Debug = False) -> None:
    """List the data sets of the paper and whether they are present."""
    from psco.data.sets.catalogue import BENCHMARKS, data_folder
    from psco.errors import InputError

    def is_present(name: str) -> bool:
        try:
            return data_folder(name, root).exists()
        except InputError:
            return False

    built_in = {"name": "glyphs", "title": "invented characters, drawn by psco", "here": True}
    rows = [built_in] + [
        {"name": name, "title": about.title, "here": is_present(name)}
        for name, about in BENCHMARKS.items()
    ]
    if as_json:
        typer.echo(json.dumps(rows))
    else:
        for row in rows:
            typer.echo(f"{row['name']:<13} {'here' if row['here'] else '-':<5} {row['title']}")


@app.command()
@command
def info(name: Name, as_json: Json = False, debug: Debug = False) -> None:
    """Describe a data set: contents, source, expected files."""
    from dataclasses import asdict

    from psco.data.sets.catalogue import describe
    from psco.data.sets.fetch import REMOTES

    about = describe(name)
    facts: dict[str, Any] = {
        "name": name,
        **asdict(about),
        "folder": about.folder or name,
        "download": name in REMOTES,
    }
    if as_json:
        typer.echo(json.dumps(facts))
        return
    for split, (classes, images) in facts.pop("splits").items():
        typer.echo(
            f"{split:<9} {classes} classes{'' if images is None else f', {images:,} images'}"
        )
    for title, value in facts.items():
        typer.echo(f"{title:<9} {value}")


@app.command()
@command
def prepare(
    name: Name,
    root: Root = None,
    size: Annotated[int | None, typer.Option(help="Side of the images in pixels.")] = None,
    as_json: Json = False,
    debug: Debug = False,
) -> None:
    """Decode a data set into the cache, from which it then loads at once."""
    from psco.data.sets.benchmarks import load_benchmark
    from psco.data.sets.catalogue import describe

    rows = []
    for split in describe(name).splits:
        images = load_benchmark(name, split, root, size)
        shape = "x".join(map(str, images.images.shape[1:]))
        rows.append({"split": split, "classes": len(images.classes), "images": len(images)})
        if not as_json:
            typer.echo(f"{split:<6} {len(images.classes)} classes, {len(images):,} images, {shape}")
    if as_json:
        typer.echo(json.dumps(rows))


@app.command()
@command
def verify(name: Name, root: Root = None, as_json: Json = False, debug: Debug = False) -> None:
    """Check that a data set is complete and can be decoded."""
    from psco.data.sets.benchmarks import verify as verify_files

    findings = verify_files(name, root)
    if as_json:
        typer.echo(json.dumps([finding._asdict() for finding in findings]))
    else:
        for finding in findings:
            typer.echo(f"{'ok' if finding.ok else 'wrong':<6} {finding.text}")
    if not all(finding.ok for finding in findings):
        raise typer.Exit(1)


@app.command()
@command
def download(
    name: Name,
    root: Annotated[Path, typer.Option(help="Folder in which to put it.")],
    unpack: Annotated[bool, typer.Option("--unpack", help="Also unpack the archives.")] = False,
    debug: Debug = False,
) -> None:
    """Download a data set whose licence allows it."""
    from psco.data.sets.fetch import download_benchmark

    for path in download_benchmark(name, root, unpack=unpack):
        typer.echo(str(path))


@app.command()
@command
def check(
    path: Annotated[
        str, typer.Argument(help="Folder, zip archive, CSV file, or tar shards (a{0..9}.tar).")
    ],
    recipe: Annotated[
        str | None,
        typer.Option(help="Recipe to check for.", show_default="chosen by the images"),
    ] = None,
    out: Annotated[Path, typer.Option(help="Folder in which to write bad_files.txt.")] = Path(),
    as_json: Json = False,
    debug: Debug = False,
) -> None:
    """Check your own images: counts, sizes, duplicates, undecodable files.

    Exits with 1 if files cannot be decoded; bad_files.txt then lists them.
    """
    from psco.recipes.advice import check_images

    found = check_images(path, recipe=recipe)
    typer.echo(json.dumps(found.as_dict()) if as_json else "\n".join(found.lines()))
    if found.bad:
        print_note(f"bad files: {found.write_bad_files(out)}")
        raise typer.Exit(1)
