"""The sides of a comparison, each a process of its own that works when it is its turn.

Sides differ in what cannot be changed within a process: the memory allocator above all. All have
the same number of threads and the same environment otherwise. While it waits for its turn a side
uses neither cores (it has no workers then) nor memory beyond what it holds on to (free memory goes
back to the system), so sides do not disturb one another; a few steps of warm-up begin each turn.

Run as ``python -m benchmarks.speed.sides NAME OPTIONS`` with options in JSON. Every line on stdin
is a turn, in JSON; every line on stdout is its result.
"""

from __future__ import annotations

import ctypes
import json
import os
import platform
import resource
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks.speed.inputs import Case, invent_images

Turn = Callable[..., Any]


def training(cases: dict[str, dict[str, Any]]) -> Turn:
    """Make real training runs, made when they are first needed, in memory set as `pretrain` does.

    A turn ``(case, steps, shares)`` gives the mean seconds of a step or the shares of its phases.
    """
    from benchmarks.speed.trainer import Trainer
    from psco.training.environment import keep_freed_memory

    keep_freed_memory()
    trainers: dict[str, Trainer] = {}

    def turn(case: str, steps: int, shares: bool = False) -> Any:
        if case not in trainers:
            trainers[case] = Trainer(_case(cases[case]))
        trainer = trainers[case]
        return trainer.shares(steps) if shares else trainer.seconds(steps)

    return turn


def memory(case: dict[str, Any]) -> Turn:
    """Make a real training run; a turn ``(steps)`` gives the process's peak memory in MB."""
    turn = training({"only": case})

    def measure(steps: int) -> float:
        turn("only", steps)
        return peak_memory() / 1e6

    return measure


def naive(case: dict[str, Any]) -> Turn:
    """Make the naive run, in memory as glibc has it; a turn ``(steps)`` as in `training`."""
    from benchmarks.speed.naive import NaiveTrainer
    from benchmarks.speed.trainer import WARM_UP

    return partial(NaiveTrainer(_case(case)).seconds, warm_up=WARM_UP)


def gemm(sizes: list[int]) -> Turn:
    """Measure matrix products; a turn ``()`` gives operations a second."""
    from benchmarks.speed.limit import gemm_speed

    return partial(gemm_speed, sizes)


def rules(tasks: int, loop_tasks: int, hidden: int) -> Turn:
    """Classify synthetic tasks; a turn ``(rule, loop)`` gives tasks a second.

    Both sides of this comparison are in one process: they share heads, points and allocator.
    """
    from benchmarks.speed.rules import adapt_loop, first, make_heads, make_tasks, prototype_loop
    from psco.evaluation.rules import RULES

    heads = make_heads(256, hidden, 128)
    task, _ = make_tasks(heads, tasks)
    few = first(task, loop_tasks)
    runs: dict[tuple[str, bool], tuple[Callable[[], Any], int]] = {
        ("prototype", False): (partial(RULES["prototype"](), *task, heads), tasks),
        ("prototype", True): (partial(prototype_loop, task, heads), tasks),
        ("adapt", False): (partial(RULES["adapt"](), *task, heads), tasks),
        ("adapt", True): (partial(adapt_loop, few, heads), loop_tasks),
    }

    def turn(rule: str, loop: bool) -> float:
        run, number = runs[rule, loop]
        run()
        begin = time.perf_counter()
        run()
        return number / (time.perf_counter() - begin)

    return turn


def warm(folder: str) -> Turn:
    """Write a classifier and a picture; a turn ``()`` gives seconds to classify it, loaded."""
    from PIL import Image

    from psco.classifier import FewShotClassifier
    from psco.evaluation.embed import Encoder

    recipe = Case().settled()
    drawings = invent_images(40, recipe.image.source_size, recipe.image.channels).images[:]
    classifier = FewShotClassifier(Encoder.untrained(recipe), device="cpu")
    classifier.fit(drawings[:20], ["one", "two", "three", "four"] * 5)
    classifier.save(Path(folder) / "classifier.psco")
    Image.fromarray(drawings[20, :, :, 0]).save(Path(folder) / "picture.png")

    def turn() -> float:
        classifier.predict([drawings[20]])
        begin = time.perf_counter()
        classifier.predict([drawings[20]])
        return time.perf_counter() - begin

    return turn


SIDES: dict[str, Callable[..., Turn]] = {
    side.__name__: side for side in (training, memory, naive, gemm, rules, warm)
}


def peak_memory() -> int:
    """Give the greatest resident set of this process so far, in bytes."""
    status = Path("/proc/self/status")
    if status.exists():  # getrusage would include the process that started this one
        line = next(text for text in status.read_text().splitlines() if text.startswith("VmHWM"))
        return 1024 * int(line.split()[1])
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else 1024 * peak


def give_back_memory() -> None:
    """Return free memory to the system, where glibc can; the next warm-up takes it again."""
    if platform.libc_ver()[0] == "glibc":
        ctypes.CDLL(None).malloc_trim(0)


def main() -> None:
    """Serve turns until stdin ends."""
    # Whatever libraries print goes to stderr; answers have a channel of their own.
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)
    turn = SIDES[sys.argv[1]](**json.loads(sys.argv[2]))
    print(json.dumps("ready"), file=answers)
    for line in sys.stdin:
        print(json.dumps(turn(**json.loads(line))), file=answers)
        give_back_memory()


def _case(given: dict[str, Any]) -> Case:
    return Case(given["recipe"], tuple(given["overrides"]), given["images"])


if __name__ == "__main__":
    main()
