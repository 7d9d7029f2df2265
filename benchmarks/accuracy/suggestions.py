"""Measure which classes suggested labels find, and how well the rest is then classified.

    python -m benchmarks.accuracy.suggestions runs/omniglot-best --data omniglot --out FILE

A pool has 20 drawings of each of 20 test characters, without labels. 20 of them are labelled, then
20 more, then 20 more. The accuracy is that of the prototypes of the labelled drawings on all
others; drawings of a class that was not found count as wrong.
"""

from __future__ import annotations

import argparse
import json
import shlex
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.random import Generator

import psco
from benchmarks.accuracy.pickers import k_centre, prob_cover, pure_radius
from benchmarks.timing.turns import describe_environment
from psco.evaluation.rules import Embeddings
from psco.files.atomic import atomic_path
from psco.labelling.clusters import cluster
from psco.labelling.live import Labelled, LiveClassifier
from psco.labelling.suggestions import Pool, suggest

ROUNDS = 3
Picker = Callable[[Embeddings, np.ndarray, int, Generator], list[int]]


def suggested(pool: Embeddings, truth: np.ndarray, budget: int, _: Generator) -> list[int]:
    """Return what psco suggests, a round at a time, with the labels of the rounds before."""
    vectors = pool.support.numpy()
    known: dict[int, np.ndarray] = {}

    def clustering(number: int) -> np.ndarray:
        return known.setdefault(number, cluster(vectors, number))

    chosen: list[int] = []
    for _round in range(ROUNDS):
        labelled = np.zeros(len(truth), dtype=bool)
        labelled[chosen] = True
        choice = Pool(vectors, clustering, labelled, ~labelled)
        if chosen:
            found = fitted(pool, truth, chosen).predict()
            choice = choice._replace(
                margin=found.margin.numpy(), similarity=found.similarity.numpy()
            )
        chosen += [each.number for each in suggest(choice, budget)]
    return chosen


def at_random(_: Embeddings, truth: np.ndarray, budget: int, random: Generator) -> list[int]:
    order: list[int] = random.permutation(len(truth))[: ROUNDS * budget].tolist()
    return order


def one_per_class(_: Embeddings, truth: np.ndarray, budget: int, random: Generator) -> list[int]:
    """Return a drawing of every class, then a second one and so on: as if the truth were known."""
    order = random.permutation(len(truth))
    rank = {int(i): int((truth[order[:place]] == truth[i]).sum()) for place, i in enumerate(order)}
    return sorted(rank, key=lambda i: rank[i])[: ROUNDS * budget]


def farthest(pool: Embeddings, truth: np.ndarray, budget: int, random: Generator) -> list[int]:
    first = int(random.integers(len(truth)))
    return k_centre(pool.support.numpy(), ROUNDS * budget, first)


def covering(pool: Embeddings, _: np.ndarray, budget: int, __: Generator) -> list[int]:
    vectors = pool.support.numpy()
    return prob_cover(vectors, ROUNDS * budget, pure_radius(vectors, budget))


PICKERS: dict[str, Picker] = {
    "psco suggest": suggested,
    "random": at_random,
    "k-centre": farthest,
    "ProbCover": covering,
    "one true label per class": one_per_class,
}


def fitted(pool: Embeddings, truth: np.ndarray, chosen: list[int]) -> LiveClassifier:
    rows = torch.tensor(chosen)
    classes, numbers = np.unique(truth[chosen], return_inverse=True)
    live = LiveClassifier(pool.support, pool.query, None)
    names = [str(each) for each in classes]
    live.refit(Labelled(rows, torch.from_numpy(numbers), names, torch.zeros(len(rows)) > 0))
    return live


def measure(pool: Embeddings, truth: np.ndarray, chosen: list[int]) -> tuple[int, float]:
    """Return the number of classes among the chosen drawings, and the accuracy on the others."""
    predicted = np.unique(truth[chosen])[fitted(pool, truth, chosen).predict().number.numpy()]
    rest = np.setdiff1d(np.arange(len(truth)), chosen)
    return len(np.unique(truth[chosen])), float((predicted[rest] == truth[rest]).mean())


def summary(values: np.ndarray) -> dict[str, float]:
    half = 1.96 * values.std(ddof=1) / np.sqrt(len(values)) if len(values) > 1 else np.nan
    return {"mean": round(float(values.mean()), 4), "ci95": round(float(half), 4)}


def study(
    embeddings: Embeddings, labels: np.ndarray, ways: int, budget: int, pools: int, seed: int
) -> list[dict[str, Any]]:
    """Draw pools and return the classes found and the accuracy by picker and number of labels."""
    members = [np.flatnonzero(labels == number) for number in np.unique(labels)]
    found: dict[tuple[str, int], list[tuple[int, float]]] = {}
    for number in range(pools):
        random = np.random.default_rng([seed, number])
        drawn = random.permutation(len(members))[:ways]
        rows = random.permutation(np.concatenate([members[each] for each in drawn]))
        pool, truth = embeddings[torch.from_numpy(rows)], labels[rows]
        for name, pick in PICKERS.items():
            chosen = pick(pool, truth, budget, random)
            for given in range(budget, ROUNDS * budget + 1, budget):
                entry = measure(pool, truth, chosen[:given])
                found.setdefault((name, given), []).append(entry)
    rows_out = []
    for (name, given), entries in found.items():
        classes, accuracy = np.array(entries).T
        rows_out.append(
            {
                "picker": name,
                "labels": given,
                "classes": summary(classes),
                "accuracy": summary(100 * accuracy),
            }
        )
    return sorted(rows_out, key=lambda row: row["labels"])


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("run", type=Path)
    parser.add_argument("--data", default="omniglot")
    parser.add_argument("--split", default="test")
    parser.add_argument("--ways", type=int, default=20)
    parser.add_argument("--budget", type=int, default=20, help="labels in a round")
    parser.add_argument("--pools", type=int, default=200)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, help="JSON file to write")
    parser.add_argument("--quick", action="store_true", help="2 pools, to see that it runs")
    options = parser.parse_args()

    encoder = psco.load(options.run)
    image = encoder.recipe.image
    load = partial(psco.load_dataset, size=image.source_size, channels=image.channels)
    images = load(options.data, options.split)
    assert images.labels is not None
    # Rotated characters are classes of their own in few-shot tasks; nobody labels them.
    upright = [i for i, name in enumerate(images.classes) if "/rot" not in name or "rot000" in name]
    classes = upright[: options.ways] if options.quick else upright
    rows = np.flatnonzero(np.isin(images.labels, classes))
    embeddings, labels = encoder.embed(images.images[rows]), images.labels[rows]
    pools = 2 if options.quick else options.pools
    results = study(embeddings, labels, options.ways, options.budget, pools, options.seed)
    for row in results:
        found, accuracy = row["classes"], row["accuracy"]
        print(
            f"{row['labels']:>3} labels, {row['picker']:<25} {found['mean']:5.2f} ± "
            f"{found['ci95']:.2f} classes, {accuracy['mean']:.2f} ± {accuracy['ci95']:.2f} %"
        )
    if options.out is not None:
        environment = describe_environment("benchmarks.accuracy.suggestions")
        facts = {
            "command": shlex.join(environment["command"]),
            "pools": pools,
            "results": results,
            "recipe": encoder.recipe.model_dump(mode="json"),
            "environment": environment,
        }
        with atomic_path(options.out) as aside:
            aside.write_text(json.dumps(facts, indent=1) + "\n")


if __name__ == "__main__":
    main()
