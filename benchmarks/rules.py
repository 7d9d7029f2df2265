"""Speed of evaluation: the rules `prototype` and `adapt` as the paper uses them, and all others.

    python benchmarks/rules.py [--parts prototype adapt all] [--threads 2]

Three parts, each with its own lines of output:

``prototype``  2000 tasks, 20-way 5-shot with 15 queries of each class, as `psco.evaluate` runs them
               on a test set that is embedded already: drawing, gathering and classifying.
``adapt``      600 tasks, 5-way 5-shot, 50 steps, all tasks at once against one task after the other
               with a deep copy of the heads and an optimiser for each; how much faster, and by how
               much the accuracies differ.
``all``        Tasks a second of every rule, 5-way 5-shot.

Features are synthetic: Gaussian clusters, rectified, of the width of the paper's Conv4 and Conv5.
What is compared takes turns, so that a machine that is busy for a while slows both sides.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable
from typing import TypeVar

import numpy as np
import torch
import torch.nn.functional as F

from benchmarks.speed.rules import adapt_loop, make_heads, make_tasks
from benchmarks.speed.stats import ratio
from psco.data.tasks import sample_tasks
from psco.evaluation.evaluate import classify_tasks
from psco.evaluation.rules import RULES, Embeddings
from psco.evaluation.rules.prototype import Prototype

T = TypeVar("T")
PARTS = ("prototype", "adapt", "all")
WIDTH, HIDDEN, OUT = 256, 2048, 128
CLASSES, IMAGES = 1692, 20  # the test split of Omniglot, with rotations
# Rules that train whole networks need pictures.
NAMES = [name for name in RULES if not getattr(RULES[name](), "needs_pixels", False)]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=PARTS)
    parser.add_argument("--repeats", type=int, default=5, help="of the parts prototype and all")
    parser.add_argument("--prototype-tasks", type=int, default=2000)
    parser.add_argument("--adapt-tasks", type=int, default=600)
    parser.add_argument("--turn", type=int, default=24, help="tasks of adapt in a turn")
    parser.add_argument("--tasks", type=int, default=64, help="of the part all")
    parser.add_argument("--threads", type=int, help="of torch; by default its own choice")
    options = parser.parse_args()
    if options.threads:
        torch.set_num_threads(options.threads)
    print(f"torch {torch.__version__}, {torch.get_num_threads()} threads")
    if "prototype" in options.parts:
        measure_prototype(options.prototype_tasks, options.repeats)
    if "adapt" in options.parts:
        measure_adapt(options.adapt_tasks, options.turn)
    if "all" in options.parts:
        measure_all(options.tasks, options.repeats)


def measure_prototype(tasks: int, repeats: int) -> None:
    labels = np.arange(CLASSES).repeat(IMAGES)
    generator = torch.Generator().manual_seed(0)
    features, unit = (torch.randn(len(labels), n, generator=generator) for n in (WIDTH, OUT))
    points = Embeddings(features, F.normalize(unit, dim=1), F.normalize(unit, dim=1))
    drawing, classifying = [], []
    for _ in range(repeats + 1):
        seconds, drawn = timed(lambda: sample_tasks(labels, 20, 5, 15, tasks, seed=0))
        drawing.append(seconds)
        seconds, _ = timed(lambda drawn=drawn: classify_tasks(points, drawn, Prototype()))
        classifying.append(seconds)
    both = [a + b for a, b in zip(drawing[1:], classifying[1:], strict=True)]  # the first warms up
    print(
        f"\nprototype: {tasks} tasks, 20-way 5-shot, 15 queries of each class, out of "
        f"{len(labels)} embedded images\n"
        f"  {statistics.median(both):.2f} s ({min(both):.2f}-{max(both):.2f} in {repeats} repeats),"
        f" of these {statistics.median(drawing[1:]):.2f} s for drawing; wanted: 3 s for 2000 tasks"
    )


def measure_adapt(tasks: int, turn: int) -> None:
    heads = make_heads(WIDTH, HIDDEN, OUT)
    (support, labels, query, ways), truth = make_tasks(heads, tasks, width=WIDTH)
    rule = RULES["adapt"]()
    sides = {
        "at once": lambda *some: rule(*some, heads),
        "one by one": lambda *some: adapt_loop(some, heads),
    }
    times: dict[str, list[float]] = {name: [] for name in sides}
    scores: dict[str, list[torch.Tensor]] = {name: [] for name in sides}
    for begin in range(-turn, tasks, turn):  # the first turn warms up
        some = torch.arange(max(begin, 0), min(max(begin, 0) + turn, tasks))
        for name, side in sides.items():
            part = support[some], labels[some], query[some], ways
            seconds, found = timed(lambda side=side, part=part: side(*part))
            if begin >= 0:
                times[name].append(seconds)
                scores[name].append(found)
    fast, slow = (torch.cat(scores[name]) for name in sides)
    right = [100 * (s.argmax(dim=2) == truth).double().mean().item() for s in (fast, slow)]
    same = 100 * (fast.argmax(dim=2) == slow.argmax(dim=2)).double().mean().item()
    # The last turn may have fewer tasks on both sides, so its times would count as spread.
    whole = tasks // turn
    upper, lower = times["one by one"][:whole], times["at once"][:whole]
    ratios = [a / b for a, b in zip(times["one by one"], times["at once"], strict=True)]
    figure = ratio(upper, lower)
    print(
        f"\nadapt: {tasks} tasks, 5-way 5-shot, {rule.steps} steps, heads {WIDTH}-{HIDDEN}-{OUT} "
        f"and {OUT}-{HIDDEN}-{OUT}\n"
        f"  at once {sum(times['at once']):.1f} s, one by one {sum(times['one by one']):.1f} s\n"
        f"  {statistics.median(ratios):.2f} times as fast (median of {len(ratios)} turns, "
        f"{min(ratios):.2f}-{max(ratios):.2f}); wanted: 3\n"
        f"  accuracy {right[0]:.3f} % at once, {right[1]:.3f} % one by one: difference "
        f"{right[0] - right[1]:+.3f} points; wanted: within 0.1\n"
        f"  {same:.3f} % of the predictions agree, scores differ by "
        f"{(fast - slow).abs().max():.1e} at most"
    )
    if figure.refusal:
        print(f"  {figure.refusal}")


def measure_all(tasks: int, repeats: int) -> None:
    heads = make_heads(WIDTH, HIDDEN, OUT)
    task, _ = make_tasks(heads, tasks, width=WIDTH)
    speeds: dict[str, list[float]] = {name: [] for name in NAMES}
    for repeat in range(repeats + 1):  # the first warms up
        for name in NAMES:
            seconds, _ = timed(lambda name=name: RULES[name]()(*task, heads))
            if repeat:
                speeds[name].append(tasks / seconds)
    print(f"\nall: {tasks} tasks, 5-way 5-shot, {repeats} repeats")
    print(f"  {'rule':14} {'tasks/s':>9}   spread")
    for name, values in speeds.items():
        print(f"  {name:14} {statistics.median(values):9.1f}   {min(values):.1f}-{max(values):.1f}")


def timed(work: Callable[[], T]) -> tuple[float, T]:
    start = time.perf_counter()
    result = work()
    return time.perf_counter() - start, result


if __name__ == "__main__":
    main()
