"""Measure how fast a frozen EfficientNet-Lite0 computes features, beside the machine's limit.

    python -m benchmarks.features [--size 128] [--repeats 5]

Pictures per second of the network as psco runs it (BatchNorm folded, each core with 16 pictures at
a time), of the plain network on the whole batch, and with the views of the recipe
own-photos-frozen. The limit is that of a large matrix product, see ``benchmarks.speed.limit``.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable

import torch
from torch import Tensor

from benchmarks.speed.limit import GEMM_SIZES, gemm_speed, layer_operations
from psco.networks import efficientnet_lite0
from psco.ops.parallel import on_one_core_each
from psco.recipes.build import build_views
from psco.recipes.recipe import load_recipe
from psco.training.environment import keep_freed_memory
from psco.views import step_generator

_PIECE = 16  # pictures that a core handles at a time


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--size", type=int, default=128, help="side of the pictures in px")
    parser.add_argument("--pictures", type=int, default=256, help="pictures in a batch")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--quick", action="store_true", help="toy sizes, to see that it runs")
    options = parser.parse_args()
    if options.quick:
        options.size, options.pictures, options.repeats = 64, 32, 1
    keep_freed_memory()
    measure(options.size, options.pictures, options.repeats, quick=options.quick)


def measure(size: int, pictures: int, repeats: int, quick: bool = False) -> None:
    """Print pictures per second, and the fraction of the limit that they are."""
    network = efficientnet_lite0(3, size).eval()
    network = network.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    generator = torch.Generator().manual_seed(0)
    shape = (pictures, 3, size, size)
    x = torch.randn(shape, generator=generator).contiguous(memory_format=torch.channels_last)
    stored = torch.randint(0, 256, shape, generator=generator, dtype=torch.uint8)
    pair = build_views(load_recipe("own-photos-frozen", [f"image.size={size}"]))

    @torch.no_grad()  # threads do not inherit it
    def with_views(first: int) -> Tensor:
        view = pair.view_a(stored[first : first + _PIECE], step_generator(0, first))
        features: Tensor = network(view)
        return features

    operations = sum(n for _, n in layer_operations(network.train(), x[:2])) / 2
    network.eval()
    limit = gemm_speed((64, 96) if quick else GEMM_SIZES) / operations
    print(f"{operations / 1e9:.3f} GFLOP a picture; limit {limit:.0f} pictures/s")
    sides: dict[str, Callable[[], object]] = {
        "folded, 16 pictures a core": torch.no_grad()(lambda: network(x)),
        "the same with views": lambda: on_one_core_each(with_views, range(0, pictures, _PIECE)),
        "plain, whole batch": lambda: network(x),  # with gradients nothing is folded
    }
    speeds: dict[str, list[float]] = {name: [] for name in sides}
    for turn in range(repeats + 1):
        for name, run in sides.items():
            begin = time.perf_counter()
            run()
            if turn:  # the first one warms up
                speeds[name].append(pictures / (time.perf_counter() - begin))
    for name, values in speeds.items():
        speed = statistics.median(values)
        print(f"{name:<28} {speed:8.0f} pictures/s, {speed / limit:6.1%} of the limit")


if __name__ == "__main__":
    main()
