"""psco methods: the training methods."""

from __future__ import annotations

import json

import typer

from psco.cli.common import Debug, Json, command


@command
def methods(as_json: Json = False, debug: Debug = False) -> None:
    """List the training methods."""
    from psco.methods import METHODS

    rows = [
        {
            "name": name,
            "title": method.title,
            "kind": method.kind,
            "protocol": method.protocol,
            "rule": method.rule,
            "paper": method.paper,
            "summary": method.summary,
        }
        for name in METHODS
        for method in [METHODS[name]]
    ]
    if as_json:
        typer.echo(json.dumps(rows))
        return
    from rich.console import Console
    from rich.table import Table

    table = Table("name", "kind", "protocol", "what it does", "published", title="Methods")
    for row in rows:
        table.add_row(*(row[key] for key in ("name", "kind", "protocol", "summary", "paper")))
    Console().print(table)
