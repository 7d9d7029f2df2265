"""Measure the speed of evaluation under the classification rules.

    python -m benchmarks.rules [--parts prototype adapt all] [--threads 2]

Three parts, each with its own lines of output:

``prototype``  2000 tasks, 20-way 5-shot with 15 queries of each class, as `psco.evaluate` runs them
               on a test set that is already embedded: drawing, gathering and classifying.
``adapt``      600 tasks, 5-way 5-shot, 50 steps: all tasks of a turn at once beside a loop over
               tasks that copies the heads and makes an optimiser for each; speed-up, and difference
               of the accuracies.
``all``        Tasks per second of every rule, 5-way 5-shot.

Features are synthetic: rectified Gaussian clusters of the width of the paper's Conv4 and Conv5.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable
from functools import partial
from typing import Any, TypeVar

import numpy as np
import torch
import torch.nn.functional as F

from benchmarks.speed.tasks import adapt_loop, make_heads, make_tasks, score
from benchmarks.timing.stats import absolute, ratio
from benchmarks.timing.turns import take_turns
from psco.data.tasks import sample_tasks
from psco.evaluation.evaluate import classify_tasks
from psco.evaluation.rules import RULES, Embeddings
from psco.evaluation.rules.prototype import Prototype

T = TypeVar("T")
PARTS = ("prototype", "adapt", "all")
WIDTH, OUT = 256, 128  # of features and embeddings
CLASSES, IMAGES = 1692, 20  # the test split of Omniglot, with rotations
# Rules that train whole networks need pixels, and there are none here.
# Rules that read features of any network: not its images, its last two blocks or its own method.
NAMES = [
    name
    for name in RULES
    if not any(
        getattr(RULES[name](), need, False)
        for need in ("needs_pixels", "needs_previous", "needs_method")
    )
]


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=PARTS)
    parser.add_argument("--repeats", type=int, default=6, help="turns of prototype and all")
    parser.add_argument("--prototype-tasks", type=int, default=2000)
    parser.add_argument("--adapt-tasks", type=int, default=600)
    parser.add_argument("--turn", type=int, default=24, help="tasks of adapt in a turn")
    parser.add_argument("--tasks", type=int, default=64, help="tasks of the part all")
    parser.add_argument("--hidden", type=int, default=2048, help="width of the heads")
    parser.add_argument("--threads", type=int, help="of torch; by default torch chooses")
    parser.add_argument("--quick", action="store_true", help="toy sizes, to see that it runs")
    options = parser.parse_args()
    if options.quick:
        options.prototype_tasks, options.adapt_tasks, options.turn = 20, 12, 2
        options.tasks, options.repeats, options.hidden = 2, 1, 16
    if options.threads:
        torch.set_num_threads(options.threads)
    print(f"torch {torch.__version__}, {torch.get_num_threads()} threads")
    if "prototype" in options.parts:
        measure_prototype(options.prototype_tasks, options.repeats)
    if "adapt" in options.parts:
        measure_adapt(options.adapt_tasks, options.turn, options.hidden)
    if "all" in options.parts:
        measure_all(options.tasks, options.repeats, options.hidden)


def measure_prototype(tasks: int, repeats: int) -> None:
    """Print the seconds to draw and classify tasks of an embedded test set."""
    labels = np.arange(CLASSES).repeat(IMAGES)
    generator = torch.Generator().manual_seed(0)
    features, unit = (torch.randn(len(labels), n, generator=generator) for n in (WIDTH, OUT))
    embeddings = Embeddings(features, F.normalize(unit, dim=1), F.normalize(unit, dim=1))
    drawing, classifying = [], []
    for _ in range(1 + repeats):  # the first warms up
        seconds, drawn = timed(partial(sample_tasks, labels, 20, 5, 15, tasks, seed=0))
        drawing.append(seconds)
        seconds, _ = timed(partial(classify_tasks, embeddings, drawn, Prototype()))
        classifying.append(seconds)
    both = [a + b for a, b in zip(drawing[1:], classifying[1:], strict=True)]
    print(
        f"\nprototype: {tasks} tasks, 20-way 5-shot, 15 queries of each class, out of "
        f"{len(labels)} embedded images\n"
        f"  {statistics.median(both):.2f} s ({min(both):.2f}-{max(both):.2f} in {repeats} repeats),"
        f" of these {statistics.median(drawing[1:]):.2f} s for drawing"
    )


def measure_adapt(tasks: int, turn: int, hidden: int) -> None:
    """Print how much faster tasks adapt together than in a loop, and that results agree."""
    heads = make_heads(WIDTH, hidden, OUT)
    (support, labels, query, ways), truth = make_tasks(heads, tasks, width=WIDTH)
    rule: Any = RULES["adapt"]()
    sides = {
        "together": lambda *task: score("adapt", task, heads),
        "one by one": lambda *task: adapt_loop(task, heads),
    }
    starts = range(0, tasks - turn + 1, turn)  # all turns have the same number of tasks
    upcoming = {name: iter([0, *starts]) for name in sides}  # the first turn warms up

    def measure(name: str) -> tuple[float, torch.Tensor]:
        start = next(upcoming[name])
        chosen = torch.arange(start, start + turn)
        task = support[chosen], labels[chosen], query[chosen], ways
        return timed(partial(sides[name], *task))

    for name in sides:
        measure(name)
    results = take_turns(
        {name: partial(measure, name) for name in sides}, len(starts), lambda _done, _news: None
    )
    seconds = {name: [each for each, _ in results[name]] for name in sides}
    fast, slow = (torch.cat([scores for _, scores in results[name]]) for name in sides)
    answers = truth[: len(fast)]
    right = [100 * (s.argmax(dim=2) == answers).double().mean().item() for s in (fast, slow)]
    same = 100 * (fast.argmax(dim=2) == slow.argmax(dim=2)).double().mean().item()
    speedup = ratio(seconds["one by one"], seconds["together"])
    speed = speedup.refusal
    if speedup.value is not None and speedup.interval is not None:
        low, high = speedup.interval
        speed = f"{speedup.value:.2f} times as fast (95 % interval {low:.2f} to {high:.2f})"
    print(
        f"\nadapt: {len(fast)} tasks, 5-way 5-shot, {rule.steps} steps, heads "
        f"{WIDTH}-{hidden}-{OUT} and {OUT}-{hidden}-{OUT}\n"
        f"  together {sum(seconds['together']):.1f} s, one by one "
        f"{sum(seconds['one by one']):.1f} s, in {len(starts)} turns\n"
        f"  {speed}\n"
        f"  accuracy {right[0]:.3f} % together, {right[1]:.3f} % one by one: difference "
        f"{right[0] - right[1]:+.3f} points\n"
        f"  {same:.3f} % of the predictions agree; scores differ by at most "
        f"{(fast - slow).abs().max():.1e}"
    )


def measure_all(tasks: int, repeats: int, hidden: int) -> None:
    """Print the tasks per second of every rule."""
    heads = make_heads(WIDTH, hidden, OUT)
    task, _ = make_tasks(heads, tasks, width=WIDTH)

    def measure(name: str) -> float:
        seconds, _ = timed(partial(score, name, task, heads))
        return tasks / seconds

    for name in NAMES:
        measure(name)  # warm-up
    sides = {name: partial(measure, name) for name in NAMES}
    speeds = take_turns(sides, repeats, lambda _done, _news: None)
    print(f"\nall: {tasks} tasks, 5-way 5-shot, {repeats} turns")
    print(f"  {'rule':14} {'tasks/s':>9}   range")
    for name, values in speeds.items():
        median = absolute(values).value
        print(f"  {name:14} {median:9.1f}   {min(values):.1f}-{max(values):.1f}")


def timed(work: Callable[[], T]) -> tuple[float, T]:
    """Run something; return its seconds and its result."""
    begin = time.perf_counter()
    result = work()
    return time.perf_counter() - begin, result


if __name__ == "__main__":
    main()
