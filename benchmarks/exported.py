"""Measure how fast exported encoders are, beside torch.

    python -m benchmarks.exported [--networks conv4 resnet18] [--batches 1 16 256]

Both sides get decoded pictures and return embeddings, in turns within one process: torch as
`Encoder.embed` runs it, and onnxruntime with a file of ``psco export``. Both use all cores.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np

from benchmarks.timing.stats import absolute, ratio
from psco.evaluation.embed import Encoder
from psco.export.onnx.reading import OnnxEncoder
from psco.export.onnx.writing import write_onnx
from psco.recipes.recipe import load_recipe

NETWORKS: dict[str, tuple[str, list[str]]] = {
    "conv4": ("omniglot", []),
    "conv4, 4 views": ("omniglot-fast", []),
    "conv5": ("miniimagenet", []),
    "resnet18": ("miniimagenet", ["backbone={name: resnet18}"]),
    "efficientnet-lite0": ("own-photos-frozen", ["init=null", "views.at_test=0"]),
}
SECONDS = 0.05  # of a turn


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--networks", nargs="+", choices=list(NETWORKS), default=list(NETWORKS))
    parser.add_argument("--batches", nargs="+", type=int, default=[1, 16])
    parser.add_argument("--turns", type=int, default=25)
    parser.add_argument("--int8", action="store_true", help="weights in 8 bits")
    parser.add_argument("--quick", action="store_true", help="one network, to see that it runs")
    options = parser.parse_args()
    if options.quick:
        options.networks, options.batches, options.turns = ["conv4"], [1], 6
    print("| network | batch | torch, ms | onnxruntime, ms | torch / onnxruntime | difference |")
    print("|---|--:|--:|--:|--:|--:|")
    for name in options.networks:
        with tempfile.TemporaryDirectory() as folder:
            measure(name, options.batches, options.turns, options.int8, Path(folder) / "x.onnx")


def measure(name: str, batches: list[int], turns: int, int8: bool, path: Path) -> None:
    """Print a row for every size of a batch."""
    base, changes = NETWORKS[name]
    encoder = Encoder.untrained(load_recipe(base, changes))
    write_onnx(encoder, path, int8=int8)
    exported, image = OnnxEncoder(path), encoder.recipe.image
    for number in batches:
        shape = (number, image.source_size, image.source_size, image.channels)
        images = np.random.default_rng(0).integers(0, 256, shape, dtype=np.uint8)
        difference = (encoder.embed(images).query - exported.embed(images).query).abs().max()
        sides: dict[str, Callable[[], object]] = {
            "torch": partial(encoder.embed, images),
            "onnx": partial(exported.embed, images),
        }
        times: dict[str, list[float]] = {side: [] for side in sides}
        for turn in range(turns + 1):
            for side, run in sides.items():
                seconds = _time(run)
                if turn:  # the first one warms up
                    times[side].append(seconds)
        speed = ratio(times["torch"], times["onnx"])
        assert speed.interval is not None
        low, high = speed.interval
        torch_ms, onnx_ms = (1000 * (absolute(times[side]).value or 0) for side in sides)
        print(
            f"| {name} | {number} | {torch_ms:.2f} | {onnx_ms:.2f} | {speed.value:.2f} "
            f"({low:.2f} to {high:.2f}) | {difference:.0e} |",
            flush=True,
        )


def _time(run: Callable[[], object]) -> float:
    """Return the seconds of a call, from as many as fit into a turn."""
    begin, calls = time.perf_counter(), 0
    while (passed := time.perf_counter() - begin) < SECONDS or calls == 0:
        run()
        calls += 1
    return passed / calls


if __name__ == "__main__":
    main()
