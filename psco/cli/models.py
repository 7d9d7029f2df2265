"""psco models: the encoders that need no training."""

from __future__ import annotations

import json

import typer

from psco.cli.common import Debug, Json, command


@command
def models(as_json: Json = False, debug: Debug = False) -> None:
    """List the built-in encoders, which need no training.

    psco fit NAME my-labelled -o x.psco makes a classifier with one of them.
    """
    from psco.recipes.builtin import BUILT_IN

    rows = [
        {
            "name": name,
            "summary": encoder.summary,
            "licence": encoder.licence,
            "installed": encoder.missing is None,
            "missing": encoder.missing,
        }
        for name, encoder in BUILT_IN.items()
    ]
    if as_json:
        typer.echo(json.dumps(rows))
        return
    for row in rows:
        typer.echo(f"{row['name']:<12} {row['summary']} (licence: {row['licence']})")
        if row["missing"]:
            typer.echo(f"{'':<12} {row['missing']}")
