"""Measure how long a session takes to follow a label, and the memory of a large one.

    python -m benchmarks.labelling --json FILE

One picture of a pool gets a label. Timed is what happens before the page can be redrawn: the refit
of its class, calibration, and the class, probability, margin and unknown flag of every picture. The
pictures are random vectors around class centres. Then a folder of 50,000 pictures of width 1280 is
explored: clusters, suggestions, look-alikes, outliers and the map.

Times are given by the clock, and as processor time on one core, which others on the machine hardly
change.
"""

from __future__ import annotations

import argparse
import json
import resource
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from benchmarks.timing.turns import describe_environment
from psco.classifier.calibration import Calibration
from psco.evaluation.embed import Encoder
from psco.files.atomic import atomic_path
from psco.labelling.embedding import Pictures
from psco.labelling.live import Labelled, LiveClassifier
from psco.labelling.pictures import PictureFolder
from psco.labelling.suggestions import Pool, suggest
from psco.recipes.recipe import load_recipe

# Pictures, width of the embedding (128 of PsCo's heads, 1280 of the ImageNet encoder), classes, and
# labels per class.
SETTINGS = [
    (100_000, 128, 20, 10),
    (100_000, 128, 100, 10),
    (100_000, 1280, 20, 10),
    (50_000, 1280, 100, 100),
]
EXPLORED = (50_000, 1280)
CALIBRATION = Calibration((2, 50), (0.1, 0.05), ((0.2, 0.4, 0.6), (0.3, 0.5, 0.7)))


def draw(pictures: int, width: int, classes: int) -> tuple[Tensor, Tensor]:
    """Return vectors (n, d) of unit length around class centres, and their classes (n,)."""
    generator = torch.Generator().manual_seed(0)
    centres = torch.randn(classes, width, generator=generator)
    truth = torch.randint(classes, (pictures,), generator=generator)
    vectors = torch.randn(pictures, width, generator=generator).add_(centres[truth])
    return F.normalize(vectors, dim=1, out=vectors), truth


def label_in_turn(vectors: Tensor, truth: Tensor, labels: int, repeats: int) -> np.ndarray:
    """Label the first pictures, then one more at a time.

    Returns
    -------
    np.ndarray
        (repeats, 2) seconds by the clock, and of processor time.
    """
    live = LiveClassifier(vectors, vectors, CALIBRATION)
    classes = [str(number) for number in range(int(truth.max()) + 1)]
    seconds = []
    for number in range(labels, labels + repeats + 1):
        rows = torch.arange(number)
        labelled = Labelled(rows, truth[:number], classes, torch.zeros(number) > 0)
        begun = time.perf_counter(), time.process_time()
        live.refit(labelled)
        live.predict()
        seconds.append((time.perf_counter() - begun[0], time.process_time() - begun[1]))
    return np.array(seconds[1:])  # the first one fits all classes


def measure(pictures: int, width: int, classes: int, shots: int, repeats: int) -> dict[str, Any]:
    vectors, truth = draw(pictures, width, classes)
    order = torch.argsort(truth, stable=True)
    per_class = pictures // (2 * classes)
    first = [order[truth[order] == number][: min(shots, per_class)] for number in range(classes)]
    rest = np.setdiff1d(np.arange(pictures), torch.cat(first).numpy())
    rows = torch.cat([*first, torch.from_numpy(rest)])
    labels = sum(len(each) for each in first)
    seconds = label_in_turn(vectors[rows], truth[rows], labels, repeats)[:, 0]
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    processor = label_in_turn(vectors[rows], truth[rows], labels, repeats)[:, 1]
    torch.set_num_threads(threads)
    return {
        "pictures": pictures,
        "width": width,
        "classes": classes,
        "labels": labels,
        "milliseconds": {
            "median": round(1000 * float(np.median(seconds)), 1),
            "best": round(1000 * min(seconds), 1),
            "worst": round(1000 * max(seconds), 1),
            "processor": round(1000 * float(np.median(processor)), 1),
        },
    }


def explore(pictures: int, width: int) -> dict[str, Any]:
    """Return the seconds that each look at a large folder takes, and the peak memory."""
    vectors, truth = draw(pictures, width, 100)
    embedded = Pictures(
        support=vectors,
        query=vectors,
        fingerprints=draw(pictures, 256, 100)[0].numpy(),
        sizes=np.ones(pictures, dtype=np.int64),
        broken={},
        places=[(Path(), 0)] * pictures,
    )
    folder = EmbeddedFolder(embedded)
    labelled = np.zeros(pictures, dtype=bool)
    parts: dict[str, Callable[[], object]] = {
        "40 suggestions": lambda: suggest(
            Pool(folder.intact()[1], folder.clusters_of_intact, labelled, ~labelled), 40
        ),
        "clusters": folder.clusters,
        "near-duplicates": lambda: folder.duplicates(labelled),
        "outliers": folder.outliers,
        "map of principal components": lambda: folder.map("pca", wait=True),
        "predictions for 100 classes": lambda: label_in_turn(vectors, truth, 1000, 1),
    }
    seconds = {}
    for name, part in parts.items():
        begun = time.perf_counter()
        part()
        seconds[name] = round(time.perf_counter() - begun, 2)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
    return {"pictures": pictures, "width": width, "seconds": seconds, "peak_memory_mb": peak}


class EmbeddedFolder(PictureFolder):
    """A folder whose pictures were embedded before."""

    def __init__(self, pictures: Pictures) -> None:
        names = [f"{number}.png" for number in range(len(pictures))]
        super().__init__(Encoder.untrained(load_recipe("glyphs")), Path(), names, "cpu")
        self._pictures = pictures


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--repeats", type=int, default=30)
    parser.add_argument("--json", type=Path, help="file to write")
    parser.add_argument("--quick", action="store_true", help="1,000 pictures, to see that it runs")
    options = parser.parse_args()
    settings = [(1000, 16, 5, 2)] if options.quick else SETTINGS
    results = []
    for setting in settings:
        row = measure(*setting, 3 if options.quick else options.repeats)
        results.append(row)
        times = row["milliseconds"]
        print(
            f"{row['pictures']:,} pictures, width {row['width']}, {row['classes']} classes: "
            f"{times['median']} ms a label ({times['best']} to {times['worst']}), "
            f"{times['processor']} ms of processor time"
        )
    # In this order the peak of the process would be that of the larger sets above.
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
        explored = pool.submit(explore, *((2000, 16) if options.quick else EXPLORED)).result()
    print(f"{explored['pictures']:,} pictures: peak memory {explored['peak_memory_mb']} MB")
    for name, seconds in explored["seconds"].items():
        print(f"  {name}: {seconds} s")
    if options.json is not None:
        environment = describe_environment("benchmarks.labelling")
        facts = {"results": results, "explored": explored, "environment": environment}
        with atomic_path(options.json) as aside:
            aside.write_text(json.dumps(facts, indent=1) + "\n")


if __name__ == "__main__":
    main()
