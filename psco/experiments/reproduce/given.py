"""Finished runs of the user that are tested in the settings of a table.

Such a run is copied into the queue's folder as ``runs/given-NAME-HASH/run`` and is then a trained
run like any other: it is tested once, and shown even if the original is gone.
"""

from __future__ import annotations

import shutil
from pathlib import Path

from psco.errors import InputError
from psco.evaluation.tables.reader import Table, TableRow
from psco.experiments.reproduce.jobs import RUNS, Job, row_tests
from psco.experiments.reproduce.work import DONE, RUN, length_of_run
from psco.files.atomic import atomic_path
from psco.files.checksums import hash_file, write_json
from psco.recipes.recipe import load_recipe
from psco.training.checkpoint import CONFIG, ENVIRONMENT, METRICS, MODEL, read_recipe

GROUP = "Given runs"


def add_run(run: Path, out: Path) -> str:
    """Copy a finished run into a queue's folder and return its name there.

    Raises
    ------
    PscoError
        If there is no finished run in ``run``.
    """
    if not (run / MODEL).is_file():
        raise InputError(f"--encoder takes the folder of a finished run, not {str(run)!r}")
    read_recipe(run)  # verified before anything is copied
    name = f"given-{run.resolve().name}-{hash_file(run / MODEL)[:8]}"
    folder = out / RUNS / name
    if (folder / DONE).is_file():
        return name
    for file in (CONFIG, MODEL, METRICS, ENVIRONMENT):
        if (run / file).is_file():  # a baseline has no metrics
            with atomic_path(folder / RUN / file) as temporary:
                shutil.copyfile(run / file, temporary)
    write_json(folder / DONE, length_of_run(folder / RUN))
    return name


def given_row(table: Table, name: str, out: Path, tasks: int | None) -> tuple[TableRow, Job]:
    """Return the row of a run that `add_run` copied, and its tests."""
    folder = out / RUNS / name
    recipe = read_recipe(folder / RUN)
    title = name.removeprefix("given-").rpartition("-")[0]
    row = TableRow(name=title, method=recipe.method.name, group=GROUP)
    full = load_recipe(table.recipe, table.set).train
    tests = row_tests(table, row, tasks, recipe)
    return row, Job(table.data, recipe, full, None, None, tests, [table.name], given=name)
