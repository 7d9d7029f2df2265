"""Measure how fast data sets are prepared, opened and fed.

    python -m benchmarks.data [--jpegs 2000]

Omniglot is measured if PSCO_DATA names the folder that holds it.
"""

from __future__ import annotations

import argparse
import os
import resource
import statistics
import tempfile
import time
from pathlib import Path

import numpy as np
from PIL import Image

import psco
from psco.recipes.build import build_views
from psco.training.environment import keep_freed_memory
from psco.training.feed import Feed
from psco.views import step_generator


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--jpegs", type=int, default=2000, help="size of the folder of images")
    parser.add_argument("--repeats", type=int, default=30)
    parser.add_argument("--quick", action="store_true", help="20 JPEGs and no Omniglot")
    options = parser.parse_args()
    if options.quick:
        options.jpegs = 20
    with tempfile.TemporaryDirectory() as cache:
        os.environ["PSCO_CACHE"] = cache
        measure_folder(options.jpegs)  # first, before others have raised the peak memory
        if options.quick:
            return
        if os.environ.get("PSCO_DATA"):
            measure_omniglot(options.repeats)
        else:
            print("omniglot: not measured; set PSCO_DATA to the folder that holds it")


def measure_omniglot(repeats: int) -> None:
    """Print how long Omniglot takes to prepare, to open and to feed."""
    recipe = psco.load_recipe("omniglot")
    size = recipe.image.source_size
    for name in ("prepare", "open"):
        begin = time.perf_counter()
        images = psco.load_dataset("omniglot", "train", size=size, channels=1)
        print(f"omniglot {name} ({size} px)   {time.perf_counter() - begin:8.2f} s")
    keep_freed_memory()
    batches, views = Feed(images.unlabelled(), 256, 0).batches(0), build_views(recipe)
    times = []
    for step in range(repeats):
        begin = time.perf_counter()
        batch, _ = next(batches)
        gathered = time.perf_counter()
        views(batch, step_generator(0, step))
        times.append((gathered - begin, time.perf_counter() - gathered))
    names = ("gather and rotate", "two views")
    for name, values in zip(names, zip(*times, strict=True), strict=True):
        low, middle = 1e3 * min(values), 1e3 * statistics.median(values)
        print(f"256 images, {name:<18} {middle:8.1f} ms (fastest {low:.1f})")


def measure_folder(count: int) -> None:
    """Print how long a folder of JPEGs takes to pack and to open, and what memory it needs."""
    with tempfile.TemporaryDirectory() as folder:
        random = np.random.default_rng(0)
        for number in range(count):
            small = random.integers(0, 256, (25, 33, 3), dtype=np.uint8)
            image = Image.fromarray(small).resize((667, 500), Image.Resampling.BICUBIC)
            image.save(Path(folder) / f"{number}.jpg", quality=90)
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        for name in ("pack", "open"):
            begin = time.perf_counter()
            psco.load_dataset(folder, size=112, progress=False)
            seconds = time.perf_counter() - begin
            per_core = count / seconds / (os.cpu_count() or 1)
            print(f"{count} JPEGs of 500 px, {name:<5} {seconds:8.2f} s, {per_core:.0f}/s a core")
        growth = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024
        print(f"growth of the peak memory        {growth:8.0f} MB")


if __name__ == "__main__":
    main()
