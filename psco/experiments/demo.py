"""The demo: from invented characters without labels to few-shot accuracy on unseen ones."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from psco.classifier import OpenSetQuality, open_set_quality
from psco.classifier.pretraining import pretrain
from psco.data import ImageSet, load_dataset
from psco.data.tasks import sample_tasks
from psco.evaluation.embed import Embedder, Encoder, load
from psco.evaluation.evaluate import classify_tasks, draw_tasks, evaluate_tasks
from psco.evaluation.rules import Embeddings
from psco.evaluation.rules.prototype import Prototype
from psco.experiments.recipe_report import REPORT, surroundings, write_report
from psco.files.atomic import atomic_path
from psco.progress import clock
from psco.recipes.recipe import load_recipe
from psco.report.gallery import task_rows
from psco.report.page import Part, number_table, page
from psco.report.plots import accuracy_plot, training_plot
from psco.report.trust import trust_part
from psco.training.collapse import collapse_warning
from psco.training.run import Run

SETTINGS = [(5, 1), (5, 5), (20, 1), (20, 5)]
NAMES = {"psco": "PsCo", "pixels": "raw pixels", "random": "untrained network"}
TRUSTED = [(5, 1), (20, 1), (5, 5)]  # the settings in which foreign classes occur
_TRUST_TASKS = 200
_PICTURED = [(5, 1), (5, 1), (20, 1)]  # the tasks shown in the report
_QUERIES_PICTURED = 12  # of the 15 of each class


def run_demo(
    out: str | Path, *, steps: int | None = None, tasks: int = 1000, seed: int = 0
) -> dict[str, Any]:
    """Train PsCo on the embedded glyphs, compare it with two floors, and write the report.

    Parameters
    ----------
    out
        Run folder; a run that is in it already is continued.
    steps
        Length of training; None for that of the recipe ``glyphs``.
    tasks
        Test tasks for each setting.
    seed
        Seed of training and of the tasks.

    Returns
    -------
    dict
        What ``report.json`` holds: ``results`` with the accuracies in percent, ``open_set`` with
        what `open_set_quality` found, ``curves`` of the training, ``seconds`` it took, ``recipe``
        and ``environment``.

    Raises
    ------
    StoppedError
        If a signal has ended training; calling it again continues.
    """
    folder = Path(out)
    run = pretrain("glyphs", out=folder, recipe="glyphs", steps=steps, seed=seed, resume=True)
    run.require_finished(f"psco demo --out {out}")
    images = load_dataset("glyphs", "test", channels=run.recipe.image.channels)
    trained = load(folder)
    # The heads of an untrained network are no use to each other: its features stand alone.
    models: dict[str, tuple[Embedder, str]] = {
        "psco": (trained, "prototype"),
        "pixels": (Encoder.untrained(load_recipe(run.recipe, ["method.name=pixels"])), "prototype"),
        "random": (Encoder.untrained(run.recipe, seed), "class-mean"),
    }
    drawn = draw_tasks(images, SETTINGS, 15, tasks, seed)
    results = [
        {"method": name, **report.as_dict()}
        for name, (model, rule) in models.items()
        for report in evaluate_tasks(model, images, drawn, rule)
    ]
    points = trained.embed(images.images)
    qualities = [
        open_set_quality(trained, images, w, k, 15, min(tasks, _TRUST_TASKS), seed, points)
        for w, k in TRUSTED
    ]
    report = {
        "results": results,
        "open_set": [quality.as_dict() for quality in qualities],
        "curves": run.metrics,
        "seconds": run.metrics[-1]["seconds"],
        **surroundings(run),
    }
    write_report(folder / REPORT, report)
    with atomic_path(folder / "report.html") as aside:
        aside.write_text(
            _page(report, run, qualities, _gallery(points, images, seed)), encoding="utf-8"
        )
    return report


def _gallery(points: Embeddings, images: ImageSet, seed: int) -> str:
    assert images.labels is not None
    tables = []
    for number, (ways, shots) in enumerate(_PICTURED):
        tasks = sample_tasks(images.labels, ways, shots, 15, number + 1, seed)
        shown = slice(0, _QUERIES_PICTURED)
        predicted = classify_tasks(points, tasks, Prototype())[number, :, shown].numpy()
        rows = task_rows(
            images.images, tasks.support[number], tasks.query[number, :, shown], predicted
        )
        tables.append(f'<table class="task">{rows}</table>')
    return "\n".join(tables)


def _page(
    report: dict[str, Any], run: Run, qualities: Sequence[OpenSetQuality], gallery: str
) -> str:
    results = report["results"]
    cells = {
        (r["method"], r["ways"], r["shots"]): f"{r['mean']:.2f} ± {r['ci95']:.2f}" for r in results
    }
    rows = [[NAMES[name], *(cells[name, w, k] for w, k in SETTINGS)] for name in NAMES]
    table = number_table(["", *(f"{w}-way {k}-shot" for w, k in SETTINGS)], rows, strong=0)
    tasks, minutes = results[0]["tasks"], clock(report["seconds"])
    about = report["environment"]
    parts = [
        Part(
            "Accuracy on classes never seen in training",
            f"Percent with 95 % intervals over {tasks} tasks, the same for all three. A task shows "
            "one or five drawings of each of 5 or 20 new characters and asks for 15 more of each.",
            accuracy_plot(results, NAMES) + table,
        ),
        Part(
            "Tasks",
            "The first test tasks, not chosen. Left, in blue, the one labelled drawing of each "
            "character; then queries, green where PsCo is right, red where it is wrong, with the "
            "character it took the query for in the corner.",
            gallery,
        ),
        trust_part(qualities),
        Part(
            "Training",
            "Purity is the share of the selected shots that truly show the character of their "
            "query; no loss reads it. Overlap is the share of shots that two pseudo-labels claim. "
            "Spread is 1 for embeddings that point everywhere alike, 0 if all are the same.",
            training_plot(run.metrics),
        ),
    ]
    lead = (
        f"PsCo saw 20,000 drawings of 1,000 invented characters without any label, for {run.steps} "
        f"steps ({minutes} minutes). Below it meets 300 characters of other alphabets."
    )
    foot = (
        f"psco {about['psco']}, torch {about['torch']}, {about['threads']} threads, seed "
        f"{run.recipe.train.seed}, recipe {run.recipe.hash()}. All settings: config.yaml beside "
        "this file; all numbers: report.json."
    )
    return page("PsCo on glyphs", lead, parts, foot, collapse_warning(run.metrics))
