"""psco recipes: the recipes that come with the package."""

from __future__ import annotations

import json

import typer

from psco.cli.common import Debug, Json, command


@command
def recipes(as_json: Json = False, debug: Debug = False) -> None:
    """List the recipes.

    psco pretrain DATA --recipe NAME --print-config shows all settings of one.
    """
    from psco.recipes.layers import recipe_names, recipe_summary

    summaries = {name: recipe_summary(name) for name in recipe_names()}
    if as_json:
        rows = [{"name": name, "summary": text} for name, text in summaries.items()]
        typer.echo(json.dumps(rows))
        return
    from rich.console import Console
    from rich.table import Table

    table = Table("name", "what it is for", title="Recipes")
    for name, text in summaries.items():
        table.add_row(name, text)
    Console().print(table)
