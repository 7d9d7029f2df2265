"""Cost of the parts of views, and of whole recipes, beside the paper's views for Omniglot.

    python benchmarks/views.py --repeats 15

A row is what both views of a batch take: wall time, and the time that all threads together spent
computing, which a busy machine changes less. Rows take turns, and ratios are to the paper's crop
and flip in the same turn, so that a machine that is busy for a while slows both. The training
step of the recipe `omniglot` takes about 350 ms on two quiet cores (--step-ms); recipes have images
and steps of their own.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Sequence

import torch
from torch import Tensor

from psco.recipes.build import build_views
from psco.recipes.recipe import load_recipe
from psco.training.environment import keep_freed_memory
from psco.views import VIEW_PARTS, Affine, Crop, Elastic, Flip, Part, Stroke, TwoViews, View
from psco.views import step_generator as generator_of

PAPER = "crop + flip (paper)"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--images", type=int, default=256, help="in a batch")
    parser.add_argument("--source", type=int, default=105, help="side of the sources, px")
    parser.add_argument("--size", type=int, default=28, help="side of the views, px")
    parser.add_argument("--channels", type=int, choices=(1, 3), default=1)
    parser.add_argument("--repeats", type=int, default=15)
    parser.add_argument("--threads", type=int, default=2, help="of torch")
    parser.add_argument("--step-ms", type=float, default=350.0, help="a training step")
    parser.add_argument("--recipes", nargs="*", default=["own-drawings", "own-textures"])
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    keep_freed_memory()  # as in training

    runs = part_runs(options) | {name: recipe_run(name, options) for name in options.recipes}
    wall: dict[str, list[float]] = {name: [] for name in runs}
    busy: dict[str, list[float]] = {name: [] for name in runs}
    for turn in range(-2, options.repeats):  # the first two warm up
        for name, (views, images) in runs.items():
            begun, computed = time.perf_counter(), time.process_time()
            views(images, generator_of(0, turn))
            if turn >= 0:
                wall[name].append(1e3 * (time.perf_counter() - begun))
                busy[name].append(1e3 * (time.process_time() - computed))

    print(
        f"both views of {options.images} images, {options.source} to {options.size} px, "
        f"{options.channels} channels, {options.threads} threads, {options.repeats} repeats"
    )
    print(
        f"{'views':28} {'wall ms':>8} {'least':>7} {'computing':>9} {'ratio':>6} {'of a step':>9}"
    )
    for name in runs:
        ratios = [own / paper for own, paper in zip(busy[name], busy[PAPER], strict=True)]
        least = min(wall[name])
        share = f"{least / options.step_ms:9.1%}" if name not in options.recipes else f"{'-':>9}"
        print(
            f"{name:28} {statistics.median(wall[name]):8.1f} {least:7.1f} "
            f"{statistics.median(busy[name]):9.1f} {statistics.median(ratios):6.2f} {share}"
        )


def part_runs(options: argparse.Namespace) -> dict[str, tuple[TwoViews, Tensor]]:
    """Make the pairs of views: single parts after a plain resize, and what recipes combine."""
    images = noise(options.images, options.channels, options.source)
    twice = noise(options.images, options.channels, 2 * options.size)
    rows: dict[str, tuple[Sequence[Part], Tensor]] = {
        PAPER: ([Crop(), Flip()], images),
        "resize only": ([], images),
        **{name: ([VIEW_PARTS[name]()], images) for name in VIEW_PARTS},
        "affine + elastic": ([Affine(), Elastic()], images),
        f"  from {2 * options.size} px sources": ([Affine(), Elastic()], twice),
        "  the other way round": ([Elastic(), Affine()], images),
        "affine + elastic + stroke": ([Affine(), Elastic(), Stroke()], images),
        "crop + affine + elastic": ([Crop(), Affine(), Elastic()], images),
    }
    made = {
        name: (View(parts, options.size, (0.5,), (0.25,)), of) for name, (parts, of) in rows.items()
    }
    return {name: (TwoViews(view, view), of) for name, (view, of) in made.items()}


def recipe_run(name: str, options: argparse.Namespace) -> tuple[TwoViews, Tensor]:
    """Make the views of a recipe, with images as it asks for and the batch of the options."""
    recipe = load_recipe(name)
    images = noise(options.images, recipe.image.channels, recipe.image.source_size)
    return build_views(recipe), images


def noise(count: int, channels: int, side: int) -> Tensor:
    """Give random images (count, channels, side, side) uint8 in the layout of data sets."""
    images = torch.randint(0, 256, (count, channels, side, side), dtype=torch.uint8)
    return images.contiguous(memory_format=torch.channels_last)


if __name__ == "__main__":
    main()
