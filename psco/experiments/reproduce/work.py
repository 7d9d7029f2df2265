"""One run of the queue: train it, test it, and keep what is finished.

runs/NAME/run/         the run folder, see ``psco.training.checkpoint``
runs/NAME/done.json    written when the training is finished
runs/NAME/tests/*.json one file for each test
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from itertools import count, groupby
from pathlib import Path
from typing import Any

from psco.errors import InputError, PscoError
from psco.evaluation.embed import load
from psco.evaluation.evaluate import draw_tasks, evaluate_tasks
from psco.evaluation.paper_setting import data_departures
from psco.experiments.reproduce.jobs import TASK_SEED, Evaluation, Job
from psco.experiments.reproduce.sets import DataSets
from psco.files.checksums import read_json, write_json
from psco.recipes.recipe import Recipe
from psco.training.checkpoint import METRICS, is_free, load_resume, read_environment, read_recipe
from psco.training.logging import read_metrics
from psco.training.trainer import Trainer

RUN, DONE, TESTS = "run", "done.json", "tests"
_ADVICE = "remove it; the next command computes it again"


def read_done(folder: Path) -> dict[str, Any] | None:
    """Return steps, epochs and seconds of a finished run; None if it is not finished."""
    return _read(folder / DONE)


def read_test(folder: Path, test: Evaluation, fingerprint: str | None) -> dict[str, Any] | None:
    """Return the result of a test, or None if there is none.

    Parameters
    ----------
    fingerprint
        Hash of the test images as they are now; a result on others does not count. None accepts
        any, where the data set is missing.
    """
    found = _read(folder / TESTS / f"{test.name}.json")
    if found is None or (fingerprint is not None and found["fingerprint"] != fingerprint):
        return None
    return found


def is_complete(job: Job, out: Path, sets: DataSets) -> bool:
    """Whether a run is trained, and all tests are done whose data are there."""
    folder = job.folder(out)
    if read_done(folder) is None:
        return False
    return not list(_missing_tests(job, folder, sets))


def train_job(
    job: Job, out: Path, sets: DataSets, stop: Callable[[], bool], progress: bool = True
) -> bool:
    """Train a run, or continue it; return whether it is finished.

    A damaged run folder is set aside and the run starts again.

    Raises
    ------
    PscoError
        If it cannot be trained.
    """
    folder = job.folder(out)
    if read_done(folder) is not None:
        if _loads(folder / RUN):
            return True
        (folder / DONE).unlink()
    if job.given is not None:
        raise PscoError(f"{folder} is damaged; give the run again with --encoder")
    damage = _damage(folder / RUN, job.recipe)
    if damage is not None:
        aside = next(p for n in count(1) if not (p := Path(f"{folder}.damaged-{n}")).exists())
        folder.rename(aside)
        print(f"note: {damage}; set aside as {aside.name}, run again", file=sys.stderr)
    trainer = Trainer(
        sets.training_data(job.data, job.recipe.image, job.images),
        folder / RUN,
        job.recipe,
        resume=True,
        root=sets.root,
        title=job.title,
        progress=progress,
        stop=stop,
    )
    run = trainer.run()
    if not run.finished:
        return False
    write_json(folder / DONE, {**length_of_run(folder / RUN), "steps": run.steps})
    return True


def length_of_run(folder: Path) -> dict[str, float]:
    """Return steps, epochs and seconds of a run, from its metrics; zeros if it has none."""
    rows = read_metrics(folder / METRICS)
    last = rows[-1] if rows else {}
    names = {"steps": "step", "epochs": "epoch", "seconds": "seconds"}
    return {name: last.get(column, 0.0) for name, column in names.items()}


def evaluate_job(
    job: Job, out: Path, sets: DataSets, stop: Callable[[], bool], progress: bool = True
) -> list[str]:
    """Do the missing tests of a trained run; return the problems of those that are impossible."""
    folder = job.folder(out)
    missing = sorted(_missing_tests(job, folder, sets), key=lambda t: (t.data, t.rule))
    problems = []
    encoder = load(folder / RUN) if missing else None
    for (data, rule), group in groupby(missing, key=lambda t: (t.data, t.rule)):
        assert encoder is not None
        tests = list(group)
        if stop():
            break
        images = sets.load(data, tests[0].split, job.recipe.image)
        for options in {str(t.options): t.options for t in tests}.values():
            most = encoder.method.most_ways
            alike = [t for t in tests if t.options == options]
            same = [t for t in alike if t.ways <= most]
            if ways := sorted({t.ways for t in alike} - {t.ways for t in same}):
                numbers = ", ".join(map(str, ways))
                problems.append(
                    f"{job.title}, tested on {data}: {numbers} ways, trained for {most}"
                )
            if not same:
                continue
            try:
                drawn = [
                    draw_tasks(images, [(t.ways, t.shots)], t.queries, t.tasks, TASK_SEED)[0]
                    for t in same
                ]
                reports = evaluate_tasks(encoder, images, drawn, rule, options, progress)
            except PscoError as error:
                problems.append(f"{job.title}, tested on {data}: {error}")
                continue
            fingerprint = sets.fingerprint(data, tests[0].split, job.recipe.image)
            departures = data_departures(images, drawn)
            for each, report in zip(same, reports, strict=True):
                per_task = [round(value, 3) for value in report.per_task]
                content = {"fingerprint": fingerprint, "departures": departures}
                write_json(
                    folder / TESTS / f"{each.name}.json",
                    {**report.as_dict(), **content, "per_task": per_task},
                )
    return problems


def _missing_tests(job: Job, folder: Path, sets: DataSets) -> Iterator[Evaluation]:
    for each in job.tests:
        if sets.problem(each.data, each.split, job.recipe.image) is not None:
            continue
        fingerprint = sets.fingerprint(each.data, each.split, job.recipe.image)
        if read_test(folder, each, fingerprint) is None:
            yield each


def _read(path: Path) -> dict[str, Any] | None:
    """Return the content of a file; None if it is missing or damaged, and then it is removed."""
    try:
        return read_json(path, _ADVICE)[0] if path.is_file() else None
    except PscoError as error:
        print(f"note: {error}", file=sys.stderr)
        path.unlink(missing_ok=True)
        return None


def _loads(folder: Path) -> bool:
    try:
        load(folder)
    except PscoError:
        return False
    return True


def _damage(folder: Path, recipe: Recipe) -> str | None:
    """Return what is wrong with a run folder that should be continued, or None."""
    if is_free(folder):
        return None
    try:
        if read_recipe(folder) != recipe:
            raise InputError(f"{folder} has other settings than its name says")
        read_environment(folder)
        read_metrics(folder / METRICS)
        load_resume(folder)
    except PscoError as error:
        return str(error)
    return None
