"""Measure what the parts of views cost, and whole recipes of them.

    python -m benchmarks.views [--repeats 16]

A row is what both views of a batch take: wall time, and the computing time of all threads together,
which a busy machine changes less. Rows take turns. Ratios are of computing times, to the paper's
crop and flip for Omniglot in the same turn. Recipes have their own image sizes.
"""

from __future__ import annotations

import argparse
import itertools
import statistics
import time
from collections.abc import Iterator, Sequence
from functools import partial

import torch
from torch import Tensor

from benchmarks.timing.stats import ratio
from benchmarks.timing.turns import take_turns
from psco.recipes.build import build_views
from psco.recipes.recipe import load_recipe
from psco.training.environment import keep_freed_memory
from psco.views import (
    VIEW_PARTS,
    Affine,
    Crop,
    Elastic,
    Flip,
    Part,
    Stroke,
    TwoViews,
    View,
    step_generator,
)

PAPER = "crop + flip (paper)"
WARM_UP = 2


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--images", type=int, default=256, help="in a batch")
    parser.add_argument("--source", type=int, default=105, help="side of the sources, px")
    parser.add_argument("--size", type=int, default=28, help="side of the views, px")
    parser.add_argument("--channels", type=int, choices=(1, 3), default=1)
    parser.add_argument("--repeats", type=int, default=16, help="turns")
    parser.add_argument("--threads", type=int, default=2, help="of torch")
    parser.add_argument("--recipes", nargs="*", default=["own-drawings", "own-textures"])
    parser.add_argument("--quick", action="store_true", help="toy sizes, to see that it runs")
    options = parser.parse_args()
    if options.quick:
        options.images, options.repeats = 4, 6
    torch.set_num_threads(options.threads)
    keep_freed_memory()  # as in training

    pairs = part_views(options) | {name: recipe_views(name, options) for name in options.recipes}
    sides = {
        name: partial(measure, views, images, itertools.count())
        for name, (views, images) in pairs.items()
    }
    take_turns(sides, WARM_UP, lambda _done, _news: None)
    times = take_turns(sides, options.repeats, lambda _done, _news: None)

    print(
        f"both views of {options.images} images, {options.source} to {options.size} px, "
        f"{options.channels} channels, {options.threads} threads, {options.repeats} turns"
    )
    print(f"{'views':28} {'wall ms':>8} {'least':>7} {'computing':>9}  ratio, 95 % interval")
    paper = [computing for _, computing in times[PAPER]]
    for name, pair in times.items():
        wall, computing = ([each[i] for each in pair] for i in range(2))
        beside = ratio(computing, paper)
        compared = beside.refusal
        if beside.value is not None and beside.interval is not None:
            low, high = beside.interval
            compared = f"{beside.value:5.2f}, {low:.2f} to {high:.2f}"
        print(
            f"{name:28} {statistics.median(wall):8.1f} {min(wall):7.1f} "
            f"{statistics.median(computing):9.1f}  {compared}"
        )


def measure(views: TwoViews, images: Tensor, steps: Iterator[int]) -> tuple[float, float]:
    """Return wall and computing milliseconds of both views, drawn as in the next step."""
    generator = step_generator(0, next(steps))
    begin, computed = time.perf_counter(), time.process_time()
    views(images, generator)
    return 1e3 * (time.perf_counter() - begin), 1e3 * (time.process_time() - computed)


def part_views(options: argparse.Namespace) -> dict[str, tuple[TwoViews, Tensor]]:
    """Return views of single parts after a plain resize, and of combinations in recipes."""
    images = noise(options.images, options.channels, options.source)
    twice = noise(options.images, options.channels, 2 * options.size)
    rows: dict[str, tuple[Sequence[Part], Tensor]] = {
        PAPER: ([Crop(), Flip()], images),
        "resize only": ([], images),
        **{name: ([VIEW_PARTS[name]()], images) for name in VIEW_PARTS},
        "affine + elastic": ([Affine(), Elastic()], images),
        f"  from {2 * options.size} px sources": ([Affine(), Elastic()], twice),
        "  in the other order": ([Elastic(), Affine()], images),
        "affine + elastic + stroke": ([Affine(), Elastic(), Stroke()], images),
        "crop + affine + elastic": ([Crop(), Affine(), Elastic()], images),
    }
    pairs = {}
    for name, (parts, sources) in rows.items():
        view = View(parts, options.size, (0.5,), (0.25,))
        pairs[name] = (TwoViews(view, view), sources)
    return pairs


def recipe_views(name: str, options: argparse.Namespace) -> tuple[TwoViews, Tensor]:
    """Return the views of a recipe, and images of the size it asks for."""
    recipe = load_recipe(name)
    images = noise(options.images, recipe.image.channels, recipe.image.source_size)
    return build_views(recipe), images


def noise(count: int, channels: int, side: int) -> Tensor:
    """Draw images (count, channels, side, side) uint8 in the memory layout of data sets."""
    images = torch.randint(0, 256, (count, channels, side, side), dtype=torch.uint8)
    return images.contiguous(memory_format=torch.channels_last)


if __name__ == "__main__":
    main()
