"""psco evaluate: few-shot accuracy of a run."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from psco.cli.common import (
    ALL_WAYS,
    OUTPUT,
    TASKS,
    Debug,
    Json,
    Queries,
    Root,
    RuleOptions,
    Shots,
    Split,
    TaskCount,
    Ways,
    command,
    print_note,
    print_results,
    read_options,
    read_ways,
    write_page,
)
from psco.errors import InputError, counted


@command
def evaluate(
    run: Annotated[Path, typer.Argument(help="Run folder or built-in encoder, see `psco models`.")],
    data: Annotated[str, typer.Option(help="Data set, or a folder with one folder per class.")],
    root: Root = None,
    split: Split = "test",
    rule: Annotated[
        str | None,
        typer.Option(help="Classification rule.", show_default="the method's for this data"),
    ] = None,
    adapt_steps: Annotated[int, typer.Option(help="Use the rule adapt with this many steps.")] = 0,
    options: RuleOptions = None,
    views_at_test: Annotated[
        int | None,
        typer.Option(help="Views averaged with each image.", show_default="the recipe's"),
    ] = None,
    ways: Ways = ["5"],  # noqa: B006
    shots: Shots = [1],  # noqa: B006
    queries: Queries = 15,
    tasks: TaskCount = 2000,
    seed: Annotated[int, typer.Option(help="Seed of the tasks.", rich_help_panel=TASKS)] = 0,
    save_tasks: Annotated[
        Path | None, typer.Option(help="Folder to save the tasks in.", rich_help_panel=TASKS)
    ] = None,
    replay: Annotated[
        Path | None, typer.Option(help="Folder of saved tasks to use.", rich_help_panel=TASKS)
    ] = None,
    html: Annotated[
        Path | None, typer.Option(help="Also write a page with plots.", rich_help_panel=OUTPUT)
    ] = None,
    as_json: Json = False,
    debug: Debug = False,
) -> None:
    """Measure few-shot accuracy on classes that were not seen in training."""
    from psco.data import has_splits, load_dataset
    from psco.data.duplicates import count_copies
    from psco.data.tasks import load_tasks
    from psco.evaluation.embed import load
    from psco.evaluation.evaluate import draw_tasks, evaluate_tasks, resolve_rule
    from psco.training.collapse import run_warning

    given = read_options(options or [])
    encoder = load(run, views_at_test)
    if warning := run_warning(run):
        print_note(f"warning: {warning}")
    image = encoder.recipe.image
    images = load_dataset(data, split, root, size=image.source_size, channels=image.channels)
    rule, given = resolve_rule(encoder, images, rule, given, adapt_steps)
    settings = [(w, k) for w in read_ways(ways) for k in shots]
    if replay is not None:
        drawn = [load_tasks(replay / _task_file(setting)) for setting in settings]
    else:
        drawn = draw_tasks(images, settings, queries, tasks, seed)
    results = evaluate_tasks(encoder, images, drawn, rule, given, progress=True)
    if save_tasks is not None:
        for sample in drawn:
            sample.save(save_tasks / _task_file(sample.setting))
    if html is not None:
        from psco.report.evaluated import evaluation_page

        write_page(html, evaluation_page(encoder, images, drawn, results, str(run)))
    rows = [{"method": encoder.recipe.method.name, **result.as_dict()} for result in results]
    if as_json:
        typer.echo(json.dumps({"run": str(run), "results": rows}))
        return
    print_results(rows, f"{run} on {data} ({split}), {results[0].how}, accuracy in %")
    if not has_splits(data) and (copies := count_copies(images.images[:])):
        print_note(
            f"warning: {counted(copies, 'image')} have near-duplicates here: supports and queries "
            f"may be almost the same; the accuracy is then too high"
        )
    for result in results:
        if result.left_out:
            print_note(
                f"note: {result.ways}-way {result.shots}-shot leaves out {result.left_out} classes "
                f"with fewer than {result.shots + result.queries} images"
            )


def _task_file(setting: tuple[int | str, int]) -> str:
    if setting[0] == ALL_WAYS:
        raise InputError("--replay needs the number of ways, not --ways all")
    return f"{setting[0]}-way-{setting[1]}-shot.npz"
