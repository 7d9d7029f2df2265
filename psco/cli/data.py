"""Commands about data sets: list, info, prepare, verify, download, check."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

import typer

from psco.cli.common import Debug, Json, Root, for_people, say

app = typer.Typer(name="data", help="Data sets: what there is and what is in it.")

Name = Annotated[str, typer.Argument(help="Name of a data set, see `psco data list`.")]


@app.command("list")
@for_people
def list_(root: Root = None, as_json: Json = False, debug: Debug = False) -> None:
    """List the data sets of the paper, and whether they are here."""
    from psco.data.sets.catalogue import BENCHMARKS, data_folder
    from psco.errors import InputError

    def is_here(name: str) -> bool:
        try:
            return data_folder(name, root).exists()
        except InputError:
            return False

    embedded = {"name": "glyphs", "title": "invented characters, drawn by psco", "here": True}
    rows = [embedded] + [
        {"name": name, "title": about.title, "here": is_here(name)}
        for name, about in BENCHMARKS.items()
    ]
    if as_json:
        typer.echo(json.dumps(rows))
    else:
        for row in rows:
            typer.echo(f"{row['name']:<13} {'here' if row['here'] else '-':<5} {row['title']}")


@app.command()
@for_people
def info(name: Name, as_json: Json = False, debug: Debug = False) -> None:
    """Tell what a data set is, where to get it and which files are expected."""
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
@for_people
def prepare(
    name: Name,
    root: Root = None,
    size: Annotated[int | None, typer.Option(help="Side of the images in px.")] = None,
    as_json: Json = False,
    debug: Debug = False,
) -> None:
    """Decode a data set once into the cache, so that it opens at once from then on."""
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
@for_people
def verify(name: Name, root: Root = None, as_json: Json = False, debug: Debug = False) -> None:
    """Check that a data set is complete and can be decoded."""
    from psco.data.sets.benchmarks import verify as look

    findings = look(name, root)
    if as_json:
        typer.echo(json.dumps([finding._asdict() for finding in findings]))
    else:
        for finding in findings:
            typer.echo(f"{'ok' if finding.ok else 'wrong':<6} {finding.text}")
    if not all(finding.ok for finding in findings):
        raise typer.Exit(1)


@app.command()
@for_people
def download(
    name: Name,
    root: Annotated[Path, typer.Option(help="Folder below which to put it.")],
    unpack: Annotated[bool, typer.Option("--unpack", help="Also unpack the archives.")] = False,
    debug: Debug = False,
) -> None:
    """Download a data set whose licence allows it."""
    from psco.data.sets.fetch import download_benchmark

    for path in download_benchmark(name, root, unpack=unpack):
        typer.echo(str(path))


@app.command()
@for_people
def check(
    path: Annotated[Path, typer.Argument(help="Folder, zip archive or CSV file.")],
    recipe: Annotated[str, typer.Option(help="Recipe that will be used.")] = "own-images",
    out: Annotated[Path, typer.Option(help="Folder for bad_files.txt.")] = Path(),
    as_json: Json = False,
    debug: Debug = False,
) -> None:
    """Look at your own images: counts, sizes, duplicates, what cannot be decoded.

    Exits with 1 if files cannot be decoded; they are listed in bad_files.txt.
    """
    from psco.recipes.advice import check_images

    found = check_images(path, recipe=recipe)
    typer.echo(json.dumps(found.as_dict()) if as_json else "\n".join(found.lines()))
    if found.bad:
        say(f"bad files: {found.write_bad_files(out)}")
        raise typer.Exit(1)
