"""The demo: train on invented characters without labels, test on unseen ones, write a page."""

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
OPEN_SET = [(5, 1), (20, 1), (5, 5)]  # settings with queries of foreign classes
_OPEN_SET_TASKS = 200
_SHOWN = [(5, 1), (5, 1), (20, 1)]  # tasks shown on the page
_QUERIES_SHOWN = 12  # of 15 per class


def run_demo(
    out: str | Path, *, steps: int | None = None, tasks: int = 1000, seed: int = 0
) -> dict[str, Any]:
    """Train PsCo on the embedded glyphs, compare it with two baselines, and write the report.

    Parameters
    ----------
    out
        Run folder; a run in it is continued.
    steps
        Length of training; None for the length in the recipe ``glyphs``.
    tasks
        Test tasks per setting.
    seed
        Seed of training and of the tasks.

    Returns
    -------
    dict
        The content of ``report.json``: ``results`` (accuracies in percent), ``open_set`` (from
        `open_set_quality`), the training ``curves``, its ``seconds``, ``recipe`` and
        ``environment``.

    Raises
    ------
    StoppedError
        If a signal stopped training; another call continues.
    """
    folder = Path(out)
    run = pretrain("glyphs", out=folder, recipe="glyphs", steps=steps, seed=seed, resume=True)
    run.require_finished(f"psco demo --out {out}")
    images = load_dataset("glyphs", "test", channels=run.recipe.image.channels)
    trained = load(folder)
    # An untrained predictor does not map queries to supports, so the features are used instead.
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
        open_set_quality(trained, images, w, k, 15, min(tasks, _OPEN_SET_TASKS), seed, points)
        for w, k in OPEN_SET
    ]
    report = {
        "results": results,
        "open_set": [quality.as_dict() for quality in qualities],
        "curves": run.metrics,
        "seconds": run.metrics[-1]["seconds"],
        **surroundings(run),
    }
    write_report(folder / REPORT, report)
    with atomic_path(folder / "report.html") as temporary:
        temporary.write_text(
            _page(report, run, qualities, _gallery(points, images, seed)), encoding="utf-8"
        )
    return report


def _gallery(points: Embeddings, images: ImageSet, seed: int) -> str:
    assert images.labels is not None
    tables = []
    for number, (ways, shots) in enumerate(_SHOWN):
        tasks = sample_tasks(images.labels, ways, shots, 15, number + 1, seed)
        shown = slice(0, _QUERIES_SHOWN)
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
            f"Percent with 95 % intervals over {tasks} tasks, the same for all three. A task has "
            "one or five labelled drawings of each of 5 or 20 new characters, and 15 more of "
            "each to classify.",
            accuracy_plot(results, NAMES) + table,
        ),
        Part(
            "Tasks",
            "The first test tasks, not selected. Left, in blue, the labelled drawing of each "
            "character; then the queries, green if PsCo is right and red if it is wrong, with the "
            "predicted character in the corner.",
            gallery,
        ),
        trust_part(qualities),
        Part(
            "Training",
            "Purity is the fraction of selected shots that show the same character as their query; "
            "it is not used in training. Overlap is the fraction of shots selected by two queries. "
            "The embedding std is 1 if the embeddings are evenly distributed and 0 if they are all "
            "the same.",
            training_plot(run.metrics),
        ),
    ]
    lead = (
        f"PsCo was trained on 20,000 drawings of 1,000 invented characters without labels, for "
        f"{run.steps} steps ({minutes} minutes), and tested on 300 characters of other alphabets."
    )
    foot = (
        f"psco {about['psco']}, torch {about['torch']}, {about['threads']} threads, seed "
        f"{run.recipe.train.seed}, recipe {run.recipe.hash()}. All settings are in config.yaml "
        "and all numbers in report.json, beside this file."
    )
    return page("PsCo on glyphs", lead, parts, foot, collapse_warning(run.metrics))
