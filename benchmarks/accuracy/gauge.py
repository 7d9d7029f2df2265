"""Measure whether a quality gauge without labels ranks runs as few-shot accuracy does.

    python -m benchmarks.accuracy.gauge --out runs/gauge --threads 1
    python -m benchmarks.accuracy.gauge --out runs/gauge --table results/gauge/README.md

Every run trains on unlabelled pictures of one data set for a number of steps. Then all candidates
are measured on pictures that it was trained on and on pictures that it has not seen, and 5-way
5-shot accuracy on the latter: with the rule prototype, which uses the heads, and with class-mean,
which uses the features. Untrained heads leave the first at chance. A finished run leaves
OUT/DATA-steps-N-seed-S.json and is not repeated. The table has Spearman's rank correlation of each
candidate with accuracy.
"""

from __future__ import annotations

import argparse
import json
import shutil
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import torch

from benchmarks.timing.turns import describe_environment
from psco.data import ImageSet, load_dataset
from psco.evaluation.embed import Encoder, load
from psco.evaluation.evaluate import evaluate
from psco.files.atomic import atomic_path
from psco.ops.quality import alignment, effective_rank, retrieval_accuracy, uniformity
from psco.recipes.build import build_views
from psco.recipes.recipe import Recipe, load_recipe
from psco.training.quality import QualityGauge
from psco.training.trainer import Trainer

STEPS = (0, 10, 30, 100, 300)
RULES = ("class-mean", "prototype")
POOL, UNSEEN = 4000, 1500  # pictures to train on, and others
_PHOTOS = ["image.size=32", "image.source_size=40"]
SETTINGS = {  # recipe, splits to train and to test on, changes; small enough for one core
    "glyphs": ("glyphs", ("train", "val"), []),
    "omniglot": ("glyphs", ("train", "val"), []),
    "eurosat": ("own-photos", ("test", "test"), _PHOTOS),
    "cropdiseases": ("own-photos", ("test", "test"), _PHOTOS),
}
COMMON = [
    "backbone.name=conv4",
    "heads.hidden=256",
    "method.queue_size=1024",
    "train.batch_size=64",
    "train.learning_rate=0.2",
    "train.warmup_steps=5",
    "train.purity=false",
    "train.log_steps=10",
]


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--out", type=Path, required=True, help="folder of the results")
    parser.add_argument("--data", nargs="+", default=list(SETTINGS), choices=list(SETTINGS))
    parser.add_argument("--steps", type=int, nargs="+", default=list(STEPS))
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1])
    parser.add_argument("--tasks", type=int, default=400)
    parser.add_argument("--threads", type=int, help="of torch")
    parser.add_argument("--table", type=Path, help="only write the table of finished runs, here")
    parser.add_argument("--quick", action="store_true", help="two short runs, 5 tasks")
    options = parser.parse_args()
    if options.quick:
        options.data, options.steps, options.seeds, options.tasks = ["glyphs"], [0, 2], [0], 5
    if options.table is None:
        run_all(options)
    table = to_markdown([json.loads(f.read_text()) for f in sorted(options.out.glob("*.json"))])
    with atomic_path(options.table or options.out / "table.md") as aside:
        aside.write_text(table)
    print(table)


def run_all(options: argparse.Namespace) -> None:
    """Train and measure the runs that are missing."""
    if options.threads:
        torch.set_num_threads(options.threads)
    jobs = [(s, n, d) for s in options.seeds for n in options.steps for d in options.data]
    for seed, steps, data in jobs:
        file = options.out / f"{data}-steps-{steps}-seed-{seed}.json"
        if file.exists():
            continue
        facts = measure(data, steps, seed, options.tasks, options.out / "runs" / file.stem)
        with atomic_path(file) as aside:
            aside.write_text(json.dumps(facts) + "\n")
        print(f"{file.stem}: {facts['accuracy']}", file=sys.stderr)


def measure(data: str, steps: int, seed: int, tasks: int, folder: Path) -> dict[str, Any]:
    """Train one run and return its accuracy and all candidates."""
    name, splits, changes = SETTINGS[data]
    recipe = load_recipe(
        name, [*COMMON, *changes, f"train.steps={max(1, steps)}", f"train.seed={seed}"]
    )
    pool, unseen = split_pictures(data, splits, recipe)
    if steps == 0:
        encoder = Encoder.untrained(recipe, seed)
    else:
        run = Trainer(pool.unlabelled(), folder, recipe, resume=True, progress=False).run()
        if not run.finished:
            sys.exit(1)  # interrupted; the same command continues
        encoder = load(run.folder)
        shutil.rmtree(run.folder)
    reports = {r: evaluate(encoder, unseen, 5, 5, tasks=tasks, rule=r) for r in RULES}
    return {
        "data": data,
        "steps": steps,
        "seed": seed,
        "tasks": tasks,
        "accuracy": {rule: report.mean for rule, report in reports.items()},
        "ci95": {rule: report.ci95 for rule, report in reports.items()},
        "gauges": {
            "trained": candidates(encoder, pool, seed),
            "unseen": candidates(encoder, unseen, seed),
        },
        "environment": describe_environment("benchmarks.accuracy.gauge"),
    }


def split_pictures(data: str, splits: tuple[str, str], recipe: Recipe) -> tuple[ImageSet, ImageSet]:
    """Return pictures to train on and others, the same in every run.

    The others are of other classes if the data set has splits, else of the same ones.
    """
    image = recipe.image
    pool, rest = (
        load_dataset(data, split, size=image.source_size, channels=image.channels)
        for split in splits
    )
    order = np.random.default_rng(0).permutation(len(pool))
    if splits[0] == splits[1]:
        return take(pool, order[UNSEEN : UNSEEN + POOL]), take(rest, order[:UNSEEN])
    return take(pool, order[:POOL]), take(rest, np.arange(min(UNSEEN, len(rest))))


def take(images: ImageSet, chosen: np.ndarray) -> ImageSet:
    """Return some of the pictures with their labels."""
    assert images.labels is not None
    chosen = np.sort(chosen)
    return ImageSet(images.images[chosen], images.labels[chosen], images.classes, images.name)


@torch.no_grad()
def candidates(encoder: Encoder, images: ImageSet, seed: int) -> dict[str, float]:
    """Return every candidate: of the backbone's features and of the heads' embeddings."""
    method = encoder.method
    a, b = QualityGauge(images, build_views(encoder.recipe), seed).features(method)
    found = {}
    for name, one, other in (
        ("features", unit(a), unit(b)),
        ("centred", unit(a - b.mean(dim=0)), unit(b - b.mean(dim=0))),
        ("heads", method.query_head(a), method.support_head(b)),
    ):
        found[f"retrieval, {name}"] = retrieval_accuracy(one, other)
        found[f"alignment, {name}"] = -alignment(one, other)
        found[f"uniformity, {name}"] = -uniformity(other)
        found[f"alignment + uniformity, {name}"] = -alignment(one, other) - uniformity(other)
        found[f"effective rank, {name}"] = effective_rank(other)
    return found


def unit(x: torch.Tensor) -> torch.Tensor:
    """Return rows of unit length."""
    return torch.nn.functional.normalize(x, dim=1)


def spearman(a: Iterable[float], b: Iterable[float]) -> float:
    """Return the rank correlation of two sequences; nan for fewer than three values."""
    from scipy.stats import spearmanr  # type: ignore[import-untyped]

    a, b = list(a), list(b)
    return float(spearmanr(a, b).statistic) if len(a) > 2 else float("nan")


def to_markdown(runs: list[dict[str, Any]]) -> str:
    """Return the tables: the candidates under each rule, and the runs."""
    sets = sorted({run["data"] for run in runs})
    groups = [runs, *([run for run in runs if run["data"] == data] for data in sets)]
    lines = []
    for rule in RULES:
        lines += [
            f"{len(runs)} runs; Spearman's rank correlation with 5-way 5-shot accuracy under the "
            f"rule {rule}: over all runs, and over those of one data set.",
            "",
            f"| candidate | measured on | all | {' | '.join(sets)} |",
            "|---|---|" + "---|" * len(groups),
        ]
        rows = []
        for where in ("trained", "unseen"):
            for name in runs[0]["gauges"][where] if runs else ():
                values = [correlation(group, where, name, rule) for group in groups]
                cells = " | ".join(f"{value:.2f}" for value in values)
                rows.append((-values[0], f"| {name} | {where} pictures | {cells} |"))
        lines += [*(row for _, row in sorted(rows)), ""]
    lines += [
        "| data | steps | seed | class-mean | prototype | retrieval, features |",
        "|---|---|---|---|---|---|",
    ]
    for run in sorted(runs, key=lambda run: (run["data"], run["steps"], run["seed"])):
        gauge = run["gauges"]["trained"]["retrieval, features"]
        cells = " | ".join(f"{run['accuracy'][r]:.1f} ± {run['ci95'][r]:.1f}" for r in RULES)
        start = f"| {run['data']} | {run['steps']} | {run['seed']} |"
        lines.append(f"{start} {cells} | {100 * gauge:.1f} % |")
    return "\n".join(lines) + "\n"


def correlation(runs: list[dict[str, Any]], where: str, name: str, rule: str) -> float:
    """Return the rank correlation of a candidate with accuracy over some runs."""
    return spearman(
        (run["gauges"][where][name] for run in runs), (run["accuracy"][rule] for run in runs)
    )


if __name__ == "__main__":
    main()
