"""The command line: parse, call the public function of the same name, print what it gives.

Results go to stdout, everything else to stderr. Exit codes: 0 done, 1 failed or interrupted,
2 bad input. Nothing heavy is imported before a command runs, so that help answers at once.
"""

from __future__ import annotations

import functools
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import typer

from psco.errors import InputError, PscoError
from psco.version import __version__

app = typer.Typer(
    name="psco",
    help="Few-shot classifiers from unlabelled images (PsCo).",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
# Options that take several values in a row, `--ways 5 20`, and what such a value looks like.
_LISTS: dict[str, Callable[[str], bool]] = {
    "--ways": str.isdigit,
    "--shots": str.isdigit,
    "--set": lambda word: "=" in word and not word.startswith("-"),
}

Json = Annotated[bool, typer.Option("--json", help="Print the result as JSON.")]
Debug = Annotated[bool, typer.Option("--debug", help="Show the traceback of an error.")]
Out = Annotated[Path, typer.Option("--out", "-o", help="Run folder to write.")]


def _for_people(command: Callable[..., None]) -> Callable[..., None]:
    """Turn errors into one line on stderr and an exit code."""

    @functools.wraps(command)
    def wrapped(*args: Any, **options: Any) -> None:
        try:
            command(*args, **options)
        except Exception as error:
            if options.get("debug") or isinstance(error, (typer.Exit, typer.Abort)):
                raise
            if isinstance(error, PscoError):
                text, code = str(error), error.exit_code
            else:
                text, code = f"{type(error).__name__}: {error} (--debug shows where)", 1
            typer.echo(f"error: {' '.join(text.split())}", err=True)
            raise typer.Exit(code) from None

    return wrapped


def _version(show: bool) -> None:
    if show:
        typer.echo(__version__)
        raise typer.Exit


@app.callback()
def _root(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    pass


@app.command()
@_for_people
def demo(
    out: Out = Path("runs/demo"),
    steps: Annotated[int | None, typer.Option(help="Train shorter or longer.")] = None,
    tasks: Annotated[int, typer.Option(help="Test tasks per setting.")] = 1000,
    seed: Annotated[int, typer.Option(help="Seed of training and of the tasks.")] = 0,
    as_json: Json = False,
    debug: Debug = False,
) -> None:
    """Train on the embedded glyphs, compare with two floors, write a report.

    An interrupted demo continues where it was; a finished one only writes its report again.
    """
    from psco.demo import run_demo

    report = run_demo(out, steps=steps, tasks=tasks, seed=seed)
    if as_json:
        typer.echo(json.dumps(report))
        return
    _print_results(report["results"], "Accuracy on unseen classes, in %")
    _say(f"report: {out / 'report.html'}")


@app.command()
@_for_people
def pretrain(
    data: Annotated[str, typer.Argument(help="Data set name or folder of images.")],
    out: Annotated[Path | None, typer.Option("--out", "-o", help="Run folder to write.")] = None,
    recipe: Annotated[str | None, typer.Option(help="Recipe name or YAML file.")] = None,
    method: Annotated[str | None, typer.Option(help="Training method.")] = None,
    epochs: Annotated[float | None, typer.Option(help="Length in epochs.")] = None,
    steps: Annotated[int | None, typer.Option(help="Length in steps.")] = None,
    minutes: Annotated[float | None, typer.Option(help="Length in minutes.")] = None,
    seed: Annotated[int | None, typer.Option(help="Seed of everything random.")] = None,
    precision: Annotated[
        str | None,
        typer.Option(help="Number format: 32-true, bf16-mixed, 16-mixed, ..."),
    ] = None,
    settings: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="A.B=C", help="Change a setting of the recipe."),
    ] = None,
    checkpoint_minutes: Annotated[
        float | None,
        typer.Option(help="Save every so many minutes.", show_default="5"),
    ] = None,
    checkpoint_steps: Annotated[
        int | None,
        typer.Option(help="Save every so many steps."),
    ] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Continue the run in --out.")] = False,
    tensorboard: Annotated[
        bool, typer.Option("--tensorboard", help="Also log for TensorBoard.")
    ] = False,
    print_config: Annotated[
        bool, typer.Option("--print-config", help="Print the resolved recipe and stop.")
    ] = False,
    as_json: Json = False,
    debug: Debug = False,
) -> None:
    """Train an encoder on unlabelled images."""
    changes = [f"train.precision={precision}"] if precision else []
    changes += settings or []
    if print_config:
        from psco.recipe import default_recipe, load_recipe, shortcuts

        flags = shortcuts(method, epochs, steps, minutes, seed)
        text = load_recipe(recipe or default_recipe(data), [*changes, *flags]).to_yaml()
        typer.echo(text, nl=False)
        return
    if out is None:
        raise InputError("--out is missing: the run folder to write, such as --out runs/first")

    from psco.training import pretrain as train

    run = train(
        data,
        out=out,
        recipe=recipe,
        method=method,
        epochs=epochs,
        steps=steps,
        minutes=minutes,
        seed=seed,
        overrides=changes,
        resume=resume,
        checkpoint_minutes=checkpoint_minutes,
        checkpoint_steps=checkpoint_steps,
        tensorboard=tensorboard,
    )
    last = run.metrics[-1] if run.metrics else {}
    result = {"run": str(out), "steps": run.steps, "finished": run.finished, "last": last}
    if as_json:
        typer.echo(json.dumps(result))
    else:
        typer.echo(f"{out}: {run.steps} steps, loss {last.get('total', float('nan')):.3f}")
    if not run.finished:
        _say(
            f"stopped at step {run.steps}; continue with: psco pretrain {data} --out {out} --resume"
        )
        raise typer.Exit(1)


@app.command()
@_for_people
def evaluate(
    run: Annotated[Path, typer.Argument(help="Run folder.")],
    data: Annotated[str, typer.Option(help="Data set name or folder with a folder per class.")],
    split: Annotated[str, typer.Option(help="train, val or test of a named data set.")] = "test",
    ways: Annotated[list[int], typer.Option(help="Classes in a task.")] = [5],  # noqa: B006
    shots: Annotated[list[int], typer.Option(help="Supports of a class.")] = [1],  # noqa: B006
    queries: Annotated[int, typer.Option(help="Queries of a class.")] = 15,
    tasks: Annotated[int, typer.Option(help="Number of tasks.")] = 2000,
    seed: Annotated[int, typer.Option(help="Decides the tasks.")] = 0,
    as_json: Json = False,
    debug: Debug = False,
) -> None:
    """Measure few-shot accuracy on classes that training has not seen."""
    from psco.data import load_dataset
    from psco.encoder import load
    from psco.evaluation import evaluate_settings

    encoder = load(run)
    image = encoder.recipe.image
    images = load_dataset(data, split, size=image.source_size, channels=image.channels)
    settings = [(w, k) for w in ways for k in shots]
    reports = evaluate_settings(encoder, images, settings, queries, tasks, seed)
    results = [{"method": encoder.recipe.method.name, **report.as_dict()} for report in reports]
    if as_json:
        typer.echo(json.dumps({"run": str(run), "results": results}))
    else:
        _print_results(results, f"{run} on {data} ({split}), accuracy in %")


@app.command()
@_for_people
def doctor(as_json: Json = False, debug: Debug = False) -> None:
    """Check this installation: versions, threads, allocator, optional packages, cache."""
    from psco.doctor import examine

    findings = examine()
    if as_json:
        typer.echo(json.dumps([finding._asdict() for finding in findings]))
    else:
        for finding in findings:
            typer.echo(f"{finding.verdict:<7} {finding.subject:<18} {finding.detail}")
    if any(finding.verdict == "broken" for finding in findings):
        raise typer.Exit(1)


def _print_results(results: list[dict[str, Any]], title: str) -> None:
    """Print a table: a row per method, a column per (ways, shots)."""
    from rich.console import Console
    from rich.table import Table

    settings = list(dict.fromkeys((r["ways"], r["shots"]) for r in results))
    table = Table("method", *(f"({w}, {k})" for w, k in settings), title=title)
    for method in dict.fromkeys(r["method"] for r in results):
        row = {(r["ways"], r["shots"]): r for r in results if r["method"] == method}
        cells = [f"{row[s]['mean']:.2f} ± {row[s]['ci95']:.2f}" for s in settings]
        table.add_row(method, *cells)
    Console().print(table)


def _say(text: str) -> None:
    typer.echo(text, err=True)


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


def main() -> None:
    """Run the program ``psco``."""
    app(spread_lists(sys.argv[1:]), prog_name="psco")


if __name__ == "__main__":
    main()
