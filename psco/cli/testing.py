"""Commands that test what was trained: evaluate."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from psco.cli.common import Debug, Json, Root, for_people, print_results, read_options, say


@for_people
def evaluate(
    run: Annotated[Path, typer.Argument(help="Run folder.")],
    data: Annotated[str, typer.Option(help="Data set name or folder with a folder per class.")],
    root: Root = None,
    split: Annotated[str, typer.Option(help="train, val or test of a named data set.")] = "test",
    ways: Annotated[list[int], typer.Option(help="Classes in a task.")] = [5],  # noqa: B006
    shots: Annotated[list[int], typer.Option(help="Supports of a class.")] = [1],  # noqa: B006
    queries: Annotated[int, typer.Option(help="Queries of a class.")] = 15,
    tasks: Annotated[int, typer.Option(help="Number of tasks.")] = 2000,
    rule: Annotated[
        str | None, typer.Option(help="How queries are classified.", show_default="the method's")
    ] = None,
    adapt_steps: Annotated[int, typer.Option(help="Rule adapt with so many steps.")] = 0,
    options: Annotated[
        list[str] | None, typer.Option("--set", metavar="A=B", help="An option of the rule.")
    ] = None,
    views_at_test: Annotated[
        int | None,
        typer.Option(help="Views averaged with each image.", show_default="the recipe's"),
    ] = None,
    seed: Annotated[int, typer.Option(help="Decides the tasks.")] = 0,
    save_tasks: Annotated[Path | None, typer.Option(help="Folder to keep the tasks in.")] = None,
    replay: Annotated[Path | None, typer.Option(help="Folder with tasks to use again.")] = None,
    html: Annotated[Path | None, typer.Option(help="Also write a page with pictures.")] = None,
    as_json: Json = False,
    debug: Debug = False,
) -> None:
    """Measure few-shot accuracy on classes that training has not seen."""
    from psco.data import load_dataset
    from psco.data.tasks import load_tasks
    from psco.evaluation.embed import load
    from psco.evaluation.evaluate import draw_tasks, evaluate_tasks, resolve_rule
    from psco.training.collapse import run_warning

    choices = read_options(options or [])
    encoder = load(run, views_at_test)
    if warning := run_warning(run):
        say(f"warning: {warning}")
    image = encoder.recipe.image
    images = load_dataset(data, split, root, size=image.source_size, channels=image.channels)
    settings = [(w, k) for w in ways for k in shots]
    if replay is not None:
        drawn = [load_tasks(replay / _file_of(setting)) for setting in settings]
    else:
        drawn = draw_tasks(images, settings, queries, tasks, seed)
    rule, choices = resolve_rule(encoder, images, rule, choices, adapt_steps)
    reports = evaluate_tasks(encoder, images, drawn, rule, choices, progress=True)
    if save_tasks is not None:
        for sample in drawn:
            sample.save(save_tasks / _file_of(sample.setting))
    if html is not None:
        from psco.files.atomic import atomic_path
        from psco.report.evaluated import evaluation_page

        with atomic_path(html) as aside:
            text = evaluation_page(encoder, images, drawn, reports, str(run))
            aside.write_text(text, encoding="utf-8")
    results = [{"method": encoder.recipe.method.name, **report.as_dict()} for report in reports]
    if as_json:
        typer.echo(json.dumps({"run": str(run), "results": results}))
    else:
        print_results(results, f"{run} on {data} ({split}), {reports[0].how}, accuracy in %")
        for r in (report for report in reports if report.left_out):
            say(
                f"note: {r.ways}-way {r.shots}-shot leaves out {r.left_out} classes with fewer "
                f"than {r.shots + r.queries} images"
            )


def _file_of(setting: tuple[int, int]) -> str:
    return f"{setting[0]}-way-{setting[1]}-shot.npz"
