"""Measure what a user's own folder of pictures comes to: from no labels to labels of all pictures.

    python -m benchmarks.accuracy.own_pictures FOLDER --out runs/own --minutes 10

FOLDER has a sub-folder per class. In each class every fifth file is a query. The others become a
flat folder without labels, the pool. Encoders are trained on the pool, a few supports per class are
drawn from it, and all queries are classified among all classes.
"""

from __future__ import annotations

import argparse
import json
import shlex
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch

import psco
from benchmarks.timing.turns import describe_environment
from psco.classifier.fitting import fit_model
from psco.classifier.model import Supports
from psco.data.reading.folders import list_images
from psco.evaluation.embed import Encoder, load
from psco.evaluation.result import interval
from psco.evaluation.rules import Embeddings, Heads
from psco.files.atomic import atomic_path

EVERY = 5  # of so many pictures of a class one is a query
CENTRES, LOGISTIC = "class centres", "logistic"
RECIPES = {"scratch": "own-images", "heads": "own-photos-frozen"}
ROWS = ("pixels", "untrained", "scratch", "frozen", "frozen, 4 views", "heads")


class Folder(NamedTuple):
    """A labelled folder, and which of its pictures are queries."""

    path: Path
    labels: np.ndarray  # (n,) int
    is_query: np.ndarray  # (n,) bool


def split(path: Path) -> Folder:
    listing = list_images(path)
    if listing.labels is None:
        raise SystemExit(f"{path} has no sub-folders of classes")
    number = np.zeros(len(listing), dtype=int)
    for label in np.unique(listing.labels):
        members = np.flatnonzero(listing.labels == label)
        number[members] = np.arange(len(members))
    return Folder(path, listing.labels, number % EVERY == EVERY - 1)


def write_pool(folder: Folder, pool: Path) -> None:
    """Copy the pictures of the pool into a flat folder, under numbers as names."""
    names = list_images(folder.path).files
    pool.mkdir(parents=True, exist_ok=True)
    for number in np.flatnonzero(~folder.is_query):
        source = folder.path / names[number]
        shutil.copy(source, pool / f"{number:06d}{source.suffix}")


def encoder_for(row: str, out: Path, minutes: float, seed: int) -> Encoder:
    if row.startswith("frozen"):
        return load("imagenet", 4 if "views" in row else 0)
    if row in RECIPES:
        run = psco.pretrain(
            out / "pool",
            out=out / row,
            recipe=RECIPES[row],
            minutes=minutes if row == "scratch" else None,
            seed=seed,
            resume=True,
        )
        return load(run.folder)
    return Encoder.untrained(psco.load_recipe(RECIPES["scratch"]), seed)


def embed(row: str, encoder: Encoder, folder: Folder) -> tuple[Embeddings, Heads | None]:
    image = encoder.recipe.image
    size = 32 if row == "pixels" else image.source_size
    images = psco.load_dataset(folder.path, size=size, channels=image.channels).images
    if row == "pixels":
        x = torch.from_numpy(images[:].reshape(len(images), -1).astype(np.float32) / 255)
        return Embeddings(x, x, x), None
    embeddings = encoder.embed(images)
    if row in RECIPES:
        return embeddings, encoder.heads
    features = torch.nn.functional.normalize(embeddings.features, dim=1)
    return Embeddings(embeddings.features, features, features), None


def accuracies(
    embeddings: Embeddings, heads: Heads | None, folder: Folder, shots: int, draws: int
) -> dict[str, list[float]]:
    """Return the accuracy in percent over all queries, for each rule and draw of supports."""
    pool = np.flatnonzero(~folder.is_query)
    queries = np.flatnonzero(folder.is_query)
    found: dict[str, list[float]] = {CENTRES: [], LOGISTIC: []}
    for seed in range(draws):
        random = np.random.default_rng(seed)
        classes = (pool[folder.labels[pool] == label] for label in np.unique(folder.labels))
        chosen = np.concatenate([random.choice(of, shots, replace=False) for of in classes])
        supports = Supports(embeddings[torch.from_numpy(chosen)], folder.labels[chosen])
        for name, rule in {CENTRES: "prototype", LOGISTIC: "logistic"}.items():
            model = fit_model(
                supports, heads=heads, rule=rule, temperature=1.0, random=np.random.RandomState(0)
            )
            labels = model.predict(embeddings[torch.from_numpy(queries)]).labels
            found[name].append(100 * float((labels == folder.labels[queries]).mean()))
    return found


def measure(options: argparse.Namespace) -> Iterator[dict[str, Any]]:
    folder = split(options.folder)
    write_pool(folder, options.out / "pool")
    for row in options.rows:
        encoder = encoder_for(row, options.out, options.minutes, options.seed)
        embeddings, heads = embed(row, encoder, folder)
        found = accuracies(embeddings, heads, folder, options.shots, options.draws)
        for rule, values in found.items():
            mean, ci95 = interval(np.array(values))
            print(f"{row:16} {rule:14} {mean:.1f} ± {ci95:.1f}", flush=True)
            yield {"row": row, "rule": rule, "mean": mean, "ci95": ci95, "draws": values}


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--out", type=Path, required=True, help="folder of pool and runs")
    parser.add_argument("--rows", nargs="+", default=list(ROWS), choices=ROWS)
    parser.add_argument("--minutes", type=float, default=10, help="length of training from scratch")
    parser.add_argument("--shots", type=int, default=5)
    parser.add_argument("--draws", type=int, default=20, help="draws of supports")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--json", type=Path, help="file to write")
    parser.add_argument("--quick", action="store_true", help="toy sizes, to see that it runs")
    options = parser.parse_args()
    if options.quick:
        options.minutes, options.draws = 0.05, 2
    results = list(measure(options))
    if options.json is not None:
        environment = describe_environment("benchmarks.accuracy.own_pictures")
        command = shlex.join(environment["command"])
        facts = {"command": command, "results": results, "environment": environment}
        with atomic_path(options.json) as aside:
            aside.write_text(json.dumps(facts, indent=1) + "\n")


if __name__ == "__main__":
    main()
