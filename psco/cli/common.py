"""What all commands share: their options, errors for people, tables."""

from __future__ import annotations

import functools
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import typer

from psco.errors import InputError, PscoError, StoppedError, printable

Json = Annotated[bool, typer.Option("--json", help="Print the result as JSON.")]
Debug = Annotated[bool, typer.Option("--debug", help="Show the traceback of an error.")]
Root = Annotated[
    Path | None, typer.Option(help="Folder that holds the data set.", show_default="$PSCO_DATA")
]

# Options that take several values in a row, `--ways 5 20`, and what such a value looks like.
_LISTS: dict[str, Callable[[str], bool]] = {
    "--ways": str.isdigit,
    "--shots": str.isdigit,
    "--seeds": str.isdigit,
    "--set": lambda word: "=" in word and not word.startswith("-"),
}


def for_people(command: Callable[..., None]) -> Callable[..., None]:
    """Turn errors of a command into one line on stderr and an exit code."""

    @functools.wraps(command)
    def wrapped(*args: Any, **options: Any) -> None:
        try:
            command(*args, **options)
        except Exception as error:
            if options.get("debug") or isinstance(error, (typer.Exit, typer.Abort)):
                raise
            if isinstance(error, StoppedError):
                text, code = str(error), error.exit_code
            elif isinstance(error, PscoError):
                text, code = f"error: {error}", error.exit_code
            else:
                text, code = f"error: {type(error).__name__}: {error} (--debug shows where)", 1
            say(printable(" ".join(text.split())))
            raise typer.Exit(code) from None

    return wrapped


def read_options(words: list[str]) -> dict[str, Any]:
    """Read ``name=value`` words; the values are YAML."""
    import yaml

    options = {}
    for word in words:
        name, equals, value = word.partition("=")
        if not name or not equals:
            raise InputError(f"--set takes name=value, such as k=3, not {word!r}")
        options[name] = yaml.safe_load(value)
    return options


def read_share(text: str, flag: str) -> float:
    """Read a share in [0, 1], written as ``0.01`` or as ``1%``."""
    try:
        share = float(text[:-1]) / 100 if text.endswith("%") else float(text)
    except ValueError:
        share = -1.0
    if not 0 <= share <= 1:
        raise InputError(f"{flag} takes a share such as 1% or 0.01, not {text!r}")
    return share


def say(text: str) -> None:
    """Print to stderr, where everything goes that is not the result."""
    typer.echo(text, err=True)


def print_results(results: list[dict[str, Any]], title: str) -> None:
    """Print a table of accuracies: a row per method, a column per (ways, shots)."""
    from rich.console import Console
    from rich.table import Table

    settings = list(dict.fromkeys((r["ways"], r["shots"]) for r in results))
    table = Table("method", *(f"({w}, {k})" for w, k in settings), title=title)
    for method in dict.fromkeys(r["method"] for r in results):
        row = {(r["ways"], r["shots"]): r for r in results if r["method"] == method}
        cells = [f"{row[s]['mean']:.2f} ± {row[s]['ci95']:.2f}" for s in settings]
        table.add_row(method, *cells)
    Console().print(table)


def spread_lists(words: list[str]) -> list[str]:
    """Repeat the flag before every further value: ``--ways 5 20`` means ``--ways 5 --ways 20``."""
    result: list[str] = []
    flag: str | None = None
    fresh = False
    for word in words:
        if word in _LISTS:
            flag, fresh = word, True
        elif flag is not None and not fresh and _LISTS[flag](word):
            result.append(flag)
        elif flag is not None and fresh:
            fresh = False
        else:
            flag = None
        result.append(word)
    return result
