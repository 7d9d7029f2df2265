"""What the commands share: options, error messages and tables."""

from __future__ import annotations

import functools
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from psco.errors import InputError, PscoError, StoppedError, counted, printable, quoted

TASKS = "Tasks"  # help panels
OUTPUT = "Output"
ALL_WAYS = "all"

Json = Annotated[
    bool, typer.Option("--json", help="Print the result as JSON.", rich_help_panel=OUTPUT)
]
Debug = Annotated[
    bool,
    typer.Option("--debug", help="Show the traceback of an error.", rich_help_panel=OUTPUT),
]
Root = Annotated[
    Path | None, typer.Option(help="Folder that holds the data sets.", show_default="$PSCO_DATA")
]
Split = Annotated[str, typer.Option(help="Split of a named data set: train, val or test.")]
RecipeName = Annotated[
    str | None,
    typer.Option(
        help="Recipe name (see psco recipes) or YAML file.",
        show_default="the data set's, or chosen by the images",
    ),
]
Settings = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="A.B=C", help="Change a setting of the recipe; repeatable."),
]
RuleOptions = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="A=B", help="Set an option of the rule; repeatable."),
]
Ways = Annotated[
    list[str],
    typer.Option(
        metavar="N|all", help="Classes per task, or all with enough images.", rich_help_panel=TASKS
    ),
]
Shots = Annotated[list[int], typer.Option(help="Supports per class.", rich_help_panel=TASKS)]
Queries = Annotated[int, typer.Option(help="Queries per class.", rich_help_panel=TASKS)]
TaskCount = Annotated[
    int, typer.Option("--tasks", help="Number of tasks per setting.", rich_help_panel=TASKS)
]
Images = Annotated[
    list[Path], typer.Argument(help="Image files and folders, or one .zip or .csv file.")
]
Raw = Annotated[
    bool,
    typer.Option(
        "--raw", help="Write text cells of .csv files that look like formulas as they are."
    ),
]
Device = Annotated[str, typer.Option(help="auto, cpu, cuda, ...")]

# Options that take several values in a row, `--ways 5 20`, and how to recognise such a value.
_LISTS: dict[str, Callable[[str], bool]] = {
    "--ways": lambda word: word.isdigit() or word == ALL_WAYS,
    "--shots": str.isdigit,
    "--seeds": str.isdigit,
    "--methods": lambda word: not word.startswith("-"),
    "--set": lambda word: "=" in word and not word.startswith("-"),
}


def command(function: Callable[..., None]) -> Callable[..., None]:
    """Turn the errors of a command into one line on stderr and an exit code."""

    @functools.wraps(function)
    def wrapped(*args: Any, **options: Any) -> None:
        try:
            function(*args, **options)
        except Exception as error:
            if options.get("debug") or isinstance(error, (typer.Exit, typer.Abort)):
                raise
            if isinstance(error, StoppedError):
                text, code = str(error), error.exit_code
            elif isinstance(error, PscoError):
                text, code = f"error: {error}", error.exit_code
            else:
                name = type(error).__name__
                text, code = f"error: {name}: {error} (--debug shows the traceback)", 1
            print_note(printable(" ".join(text.split())))
            raise typer.Exit(code) from None

    return wrapped


def print_note(text: str) -> None:
    """Print to stderr, where everything goes that is not the result."""
    typer.echo(text, err=True)


def read_options(words: list[str]) -> dict[str, Any]:
    """Parse ``name=value`` words; the values are YAML."""
    from psco.files.limited_yaml import parse_yaml

    options = {}
    for word in words:
        name, equals, value = word.partition("=")
        if not name or not equals:
            raise InputError(f"--set takes name=value, such as k=3, not {quoted(word)}")
        options[name] = parse_yaml(value, f"--set {quoted(word)}")
    return options


def read_ways(words: list[str]) -> list[int | Literal["all"]]:
    """Parse numbers of classes; ``all`` stays as it is."""
    ways: list[int | Literal["all"]] = []
    for word in words:
        if word != ALL_WAYS and not word.isdigit():
            raise InputError(f"--ways takes numbers of classes or 'all', not {word!r}")
        ways.append("all" if word == ALL_WAYS else int(word))
    return ways


def read_fraction(text: str, flag: str) -> float:
    """Parse a fraction in [0, 1], written as ``0.01`` or as ``1%``."""
    try:
        fraction = float(text[:-1]) / 100 if text.endswith("%") else float(text)
    except ValueError:
        fraction = -1.0
    if not 0 <= fraction <= 1:
        raise InputError(f"{flag} takes a fraction such as 1% or 0.01, not {text!r}")
    return fraction


def write_page(path: Path, html: str) -> None:
    """Write a page completely or not at all."""
    from psco.files.atomic import atomic_path

    with atomic_path(path) as temporary:
        # File names need not be valid Unicode.
        temporary.write_text(html, encoding="utf-8", errors="replace")


def print_results(results: list[dict[str, Any]], title: str) -> None:
    """Print a table of accuracies: a row per method, a column per setting."""
    from rich.console import Console
    from rich.table import Table

    settings = list(dict.fromkeys((r["ways"], r["shots"]) for r in results))
    table = Table("method", *(f"{w}-way {k}-shot" for w, k in settings), title=title)
    for method in dict.fromkeys(r["method"] for r in results):
        row = {(r["ways"], r["shots"]): r for r in results if r["method"] == method}
        cells = [f"{row[s]['mean']:.2f} ± {row[s]['ci95']:.2f}" for s in settings]
        table.add_row(method, *cells)
    Console().print(table)


def exit_if_failed(failed: int, total: int) -> None:
    """Exit with 1 if images could not be decoded."""
    if failed:
        print_note(f"{failed} of {counted(total, 'image')} cannot be decoded")
        raise typer.Exit(1)


def repeat_flags(words: list[str]) -> list[str]:
    """Repeat the flag of a list before each value: ``--ways 5 20`` → ``--ways 5 --ways 20``."""
    result: list[str] = []
    flag: str | None = None
    awaits_value = False
    for word in words:
        if word in _LISTS:
            flag, awaits_value = word, True
        elif flag is not None and awaits_value:
            awaits_value = False
        elif flag is not None and _LISTS[flag](word):
            result.append(flag)
        else:
            flag = None
        result.append(word)
    return result
