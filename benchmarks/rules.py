"""Speed of the classification rules, and of `adapt` against adapting one task after the other.

    python benchmarks/rules.py --tasks 64 --repeats 5

Features are synthetic: Gaussian clusters, rectified, of the width of the paper's Conv4 and Conv5.
Rules take turns, and every repeat compares `adapt` with the loop that runs next to it, so that a
machine that is busy for a while slows both. Spreads are those of the repeats.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor

from psco.bench.rules import adapt_loop, first, make_heads, make_tasks
from psco.rules import RULES

LOOP = "adapt, one by one"
# Rules that train whole networks need pictures.
NAMES = [name for name in RULES if not getattr(RULES[name](), "needs_pixels", False)]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--tasks", type=int, default=64)
    parser.add_argument("--loop-tasks", type=int, default=8, help="tasks of the slow loop")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--ways", type=int, default=5)
    parser.add_argument("--shots", type=int, default=5)
    parser.add_argument("--queries", type=int, default=15, help="of each class")
    parser.add_argument("--width", type=int, default=256)
    parser.add_argument("--hidden", type=int, default=2048)
    parser.add_argument("--out", type=int, default=128)
    parser.add_argument("--threads", type=int, help="of torch; by default its own choice")
    parser.add_argument("--rules", nargs="+", choices=NAMES, default=NAMES)
    options = parser.parse_args()
    if options.threads:
        torch.set_num_threads(options.threads)

    heads = make_heads(options.width, options.hidden, options.out)
    task, truth = make_tasks(
        heads, options.tasks, options.ways, options.shots, options.queries, options.width
    )
    few = first(task, options.loop_tasks)
    runs: dict[str, tuple[Callable[[], Tensor], int]] = {
        name: (partial(RULES[name](), *task, heads), options.tasks) for name in options.rules
    }
    if "adapt" in runs:
        runs[LOOP] = (partial(adapt_loop, few, heads), len(few[1]))

    speeds: dict[str, list[float]] = {name: [] for name in runs}
    scores = {name: run() for name, (run, _) in runs.items()}  # also warms up
    for _ in range(options.repeats):
        for name, (run, number) in runs.items():
            start = time.perf_counter()
            run()
            speeds[name].append(number / (time.perf_counter() - start))

    print(
        f"{options.ways}-way {options.shots}-shot, {options.tasks} tasks, heads "
        f"{options.width}-{options.hidden}-{options.out} and {options.out}-{options.hidden}-"
        f"{options.out}, {torch.get_num_threads()} threads, {options.repeats} repeats"
    )
    print(f"{'rule':18} {'tasks/s':>8}   spread")
    for name, values in speeds.items():
        print(f"{name:18} {statistics.median(values):8.1f}   {min(values):.1f}-{max(values):.1f}")
    if LOOP in runs:
        compare(speeds, scores, truth)


def compare(speeds: dict[str, list[float]], scores: dict[str, Tensor], truth: Tensor) -> None:
    """Print how much faster `adapt` is than the loop, and how far the two agree."""
    ratios = [a / b for a, b in zip(speeds["adapt"], speeds[LOOP], strict=True)]
    slow = scores[LOOP]
    fast = scores["adapt"][: len(slow)]
    same = (fast.argmax(dim=2) == slow.argmax(dim=2)).float().mean()
    right = [100 * (s.argmax(dim=2) == truth[: len(s)]).float().mean() for s in (fast, slow)]
    print(
        f"adapt is {statistics.median(ratios):.2f} times as fast as the loop "
        f"({min(ratios):.2f}-{max(ratios):.2f})\n"
        f"on {len(slow)} tasks: accuracy {right[0]:.2f}% and {right[1]:.2f}%, {100 * same:.2f}% of "
        f"the predictions agree, scores differ by {(fast - slow).abs().max():.1e} at most"
    )


if __name__ == "__main__":
    main()
