"""Measure what single changes of a recipe are worth, on validation classes and never on test.

    python -m benchmarks.accuracy.study omniglot --out runs/study
    python -m benchmarks.accuracy.study omniglot --out runs/study --threads 1 --part 1/2  # and 2/2
    python -m benchmarks.accuracy.study omniglot --out runs/study --table FILE

Every variant (`study_variants.py`) is the base recipe with one change, trained on the training
split with every seed. A finished run leaves OUT/STUDY/VARIANT-seed-S.json with its accuracy in
every validation task. Such runs are not repeated, and an interrupted one continues. The table
compares each variant with the base task by task.
"""

from __future__ import annotations

import argparse
import json
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch

from benchmarks.accuracy.study_variants import BASE, HEADS, HEADS_FROM, STUDIES, Study
from benchmarks.timing.turns import describe_environment
from psco.classifier.pretraining import pretrain
from psco.data import ImageSet, load_dataset
from psco.data.tasks import Tasks
from psco.evaluation.embed import load
from psco.evaluation.evaluate import draw_tasks, evaluate_tasks
from psco.evaluation.result import interval
from psco.files.atomic import atomic_path
from psco.recipes.recipe import Recipe, check_recipe, load_recipe
from psco.training.run import Run

TRAIN, VALIDATION = "train", "val"
QUERIES = 15
Results = dict[tuple[str, int], dict[str, Any]]


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("study", choices=STUDIES, metavar="STUDY", help=", ".join(STUDIES))
    parser.add_argument("--out", type=Path, required=True, help="folder of the results")
    parser.add_argument("--variants", nargs="+", help="only these and the base")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1])
    parser.add_argument("--epochs", type=float, help="of a run; the study has a default")
    parser.add_argument("--steps", type=int, help="of a run, instead of epochs")
    parser.add_argument("--tasks", type=int, default=1000, help="of each setting")
    parser.add_argument("--threads", type=int, help="of torch")
    parser.add_argument("--part", default="1/1", help="1/2 does every other run, 2/2 the rest")
    parser.add_argument("--set", nargs="+", default=[], metavar="A.B=C", help="change all runs")
    parser.add_argument("--table", type=Path, help="only write the table of finished runs, here")
    parser.add_argument("--quick", action="store_true", help="2 steps, 5 tasks, one variant")
    options = parser.parse_args()
    study = STUDIES[options.study]
    if options.quick:
        options.steps, options.tasks, options.variants = 2, 5, [next(iter(study.variants))]
    if unknown := set(options.variants or ()) - set(study.variants) - {BASE}:
        names = ", ".join(study.variants)
        parser.error(f"unknown variants: {', '.join(sorted(unknown))}; there are {names}")
    folder = options.out / options.study
    if options.table is None:
        run_study(study, options, folder)
    table = to_markdown(study, read_results(folder))
    with atomic_path(options.table or folder / "table.md") as aside:
        aside.write_text(table)
    print(table)


def run_study(study: Study, options: argparse.Namespace, folder: Path) -> None:
    """Train and evaluate the missing runs of this process's part."""
    if options.threads:
        torch.set_num_threads(options.threads)
    part, parts = map(int, options.part.split("/"))
    names = [BASE, *(options.variants or study.variants)]
    jobs = [(name, seed) for name in dict.fromkeys(names) for seed in options.seeds]
    for name, seed in jobs[part - 1 :: parts]:
        file = folder / f"{name}-seed-{seed}.json"
        recipe = resolve_recipe(study, options, name, seed)
        if file.exists():
            if check_recipe(json.loads(file.read_text())["recipe"], str(file)) != recipe:
                sys.exit(f"{file} has other settings; remove it or choose another --out")
            print(f"{file} exists, skipped", file=sys.stderr)
            continue
        images = training_images(study.data, recipe, study.every)
        out, title = folder / "runs" / f"{name}-seed-{seed}", f"{name}, seed {seed}"
        run = pretrain(images, out=out, recipe=recipe, resume=True, title=title)
        if not run.finished:
            sys.exit(1)  # interrupted; the same command continues
        facts = {
            "data": study.data,
            "variant": name,
            "seed": seed,
            "overrides": study.variants.get(name, []),
            "steps": run.steps,
            "minutes": round(run.metrics[-1]["seconds"] / 60, 2),
            "last": run.metrics[-1],
            "results": evaluate_run(study, options, run, HEADS if name == BASE else ()),
            "recipe": run.recipe.model_dump(mode="json"),
            "environment": describe_environment("benchmarks.accuracy.study"),
        }
        with atomic_path(file) as aside:
            aside.write_text(json.dumps(facts) + "\n")
        shutil.rmtree(run.folder)


def resolve_recipe(study: Study, options: argparse.Namespace, name: str, seed: int) -> Recipe:
    """Return the recipe of a variant."""
    length = f"train.epochs={options.epochs or study.epochs}"
    if options.steps:
        length = f"train.steps={options.steps}"
    changes = [*study.overrides, *options.set, *study.variants.get(name, [])]
    return load_recipe(study.recipe, [*changes, length, f"train.seed={seed}"])


def training_images(data: str, recipe: Recipe, every: int) -> ImageSet:
    """Load the training split, or every n-th image of it."""
    images = open_split(data, TRAIN, recipe)
    if every == 1:
        return images
    assert images.labels is not None
    pixels, labels = images.images[::every], images.labels[::every]
    return ImageSet(pixels, labels, images.classes, images.name, images.split)


def evaluate_run(
    study: Study, options: argparse.Namespace, run: Run, heads: tuple[str, ...]
) -> list[dict[str, Any]]:
    """Return accuracies on validation tasks: the method's rule, and from 5 shots others."""
    encoder = load(run.folder)
    images = open_split(study.data, VALIDATION, run.recipe)
    drawn = draw_tasks(images, study.settings, QUERIES, options.tasks, 0)
    many = [tasks for tasks in drawn if tasks.setting[1] >= HEADS_FROM]
    rules: list[tuple[str, list[Tasks]]] = [(encoder.method.rule, drawn)]
    rules += [(rule, many) for rule in heads]
    return [
        {**report.as_dict(), "per_task": [round(value, 3) for value in report.per_task]}
        for rule, tasks in rules
        for report in evaluate_tasks(encoder, images, tasks, rule)
    ]


def open_split(data: str, split: str, recipe: Recipe) -> ImageSet:
    """Load images in the size and channels of a recipe."""
    image = recipe.image
    return load_dataset(data, split, size=image.source_size, channels=image.channels)


def read_results(folder: Path) -> Results:
    """Read the finished runs, by variant and seed."""
    lines = [json.loads(file.read_text()) for file in sorted(folder.glob("*-seed-*.json"))]
    return {(line["variant"], line["seed"]): line for line in lines}


def to_markdown(study: Study, results: Results) -> str:
    """Return the table: accuracies, and differences to the base on the same tasks."""
    base = {seed: line for (name, seed), line in results.items() if name == BASE}
    if not base:
        return f"# {study.data}\n\nThe base is not trained yet.\n"
    about = next(iter(base.values()))
    own = about["results"][0]
    rules = [own["rule"], *(rule for rule in HEADS if has_rule(about, rule))]
    head = [
        "variant",
        "change",
        *(f"{ways}-way {shots}-shot" for ways, shots in study.settings),
        "minutes",
    ]
    lines = [
        f"# What single changes of a recipe are worth on {study.data}",
        "",
        f"The base is `{study.recipe}`{' with ' if study.overrides else ''}"
        f"{', '.join(f'`{override}`' for override in study.overrides)}. "
        f"Accuracy in percent on {own['tasks']} tasks of the validation split (never the test "
        f"split) after {about['steps']} steps, mean of the seeds. In brackets the difference to "
        "the base on the same tasks with its 95 % interval over the tasks, then the difference "
        "of each seed; where the seeds disagree, it is chance.",
        "",
        f"| {' | '.join(head)} |",
        f"|{'---|' * len(head)}",
    ]
    for name in [BASE, *study.variants]:
        seeds = [seed for seed in base if (name, seed) in results]
        if not seeds:
            continue
        for rule in rules if name == BASE else rules[:1]:
            cells = list(row_cells(study, results, name, rule, rules[0], seeds))
            label = name if rule == rules[0] else f"rule {rule}"
            change = ", ".join(f"`{o}`" for o in study.variants.get(name, []))
            minutes = np.mean([results[name, seed]["minutes"] for seed in seeds])
            lines.append(f"| {' | '.join([label, change, *cells, f'{minutes:.1f}'])} |")
    return "\n".join(lines) + "\n"


def row_cells(
    study: Study, results: Results, name: str, rule: str, base_rule: str, seeds: list[int]
) -> Iterator[str]:
    """Yield a cell for each setting: the mean and, except for the base, the difference."""
    for setting in study.settings:
        mine = [per_task(results[name, seed], rule, setting) for seed in seeds]
        theirs = [per_task(results[BASE, seed], base_rule, setting) for seed in seeds]
        if not mine[0]:
            yield ""
            continue
        cell = f"{np.mean(mine):.2f}"
        if (name, rule) != (BASE, base_rule):
            gaps = np.array(mine) - np.array(theirs)  # (seeds, tasks)
            mean, ci95 = interval(gaps.mean(axis=0))
            each = ", ".join(f"{gap:+.2f}" for gap in gaps.mean(axis=1))
            cell += f" ({mean:+.2f} ± {ci95:.2f}; {each})"
        yield cell


def per_task(line: dict[str, Any], rule: str, setting: tuple[int, int]) -> list[float]:
    """Return the accuracies of a rule in a setting, none if it was not evaluated there."""
    for row in line["results"]:
        if row["rule"] == rule and (row["ways"], row["shots"]) == setting:
            return list(row["per_task"])
    return []


def has_rule(line: dict[str, Any], rule: str) -> bool:
    """Whether a rule was evaluated at all."""
    return any(row["rule"] == rule for row in line["results"])


if __name__ == "__main__":
    main()
