"""How fast data sets are prepared, opened and fed: python benchmarks/data.py [--jpegs 2000]."""

from __future__ import annotations

import argparse
import os
import resource
import shutil
import statistics
import tempfile
import time
from pathlib import Path

import numpy as np
from PIL import Image


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--jpegs", type=int, default=2000, help="size of the folder that is packed")
    parser.add_argument("--repeats", type=int, default=30)
    options = parser.parse_args()
    cache = tempfile.mkdtemp()
    os.environ["PSCO_CACHE"] = cache
    try:
        own_folder(options.jpegs)  # first, so that its memory is told from that of the rest
        if os.environ.get("PSCO_DATA"):
            omniglot(options.repeats)
        else:
            print("omniglot: set PSCO_DATA to the folder that holds it")
    finally:
        shutil.rmtree(cache)


def omniglot(repeats: int) -> None:
    import psco
    from psco.recipes.build import build_views
    from psco.training.environment import keep_freed_memory
    from psco.training.feed import Feed
    from psco.views import step_generator

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
    for name, values in zip(
        ("gather and rotate", "two views"), zip(*times, strict=True), strict=True
    ):
        low, middle = 1e3 * min(values), 1e3 * statistics.median(values)
        print(f"256 images, {name:<18} {middle:8.1f} ms (fastest {low:.1f})")


def own_folder(count: int) -> None:
    import psco

    with tempfile.TemporaryDirectory() as folder:
        random = np.random.default_rng(0)
        for number in range(count):
            small = random.integers(0, 256, (25, 33, 3), dtype=np.uint8)
            picture = Image.fromarray(small).resize((667, 500), Image.Resampling.BICUBIC)
            picture.save(Path(folder) / f"{number}.jpg", quality=90)
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        for name in ("pack", "open"):
            begin = time.perf_counter()
            psco.load_dataset(folder, size=112, progress=False)
            seconds = time.perf_counter() - begin
            per_core = count / seconds / (os.cpu_count() or 1)
            print(f"{count} JPEGs of 500 px, {name:<5} {seconds:8.2f} s, {per_core:.0f}/s a core")
        grown = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024
        print(f"memory above that before packing {grown:8.0f} MB")


if __name__ == "__main__":
    main()
