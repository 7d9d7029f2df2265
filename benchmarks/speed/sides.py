"""The sides of the comparisons, each a process that measures when it is its turn.

Sides differ in what cannot be changed within a process, above all the memory allocator. Threads and
environment variables are the same for all. A side that waits uses no cores, since its workers have
ended, and has returned its free memory to the system; a few warm-up steps begin each measurement.

Run as ``python -m benchmarks.speed.sides NAME OPTIONS`` with options in JSON. Each line on stdin
asks for one measurement, in JSON; each line on stdout is its result.
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

from benchmarks.timing.cases import Case, synthetic_images
from benchmarks.timing.turns import Worker

Measure = Callable[..., Any]

# Each side imports what it runs by itself, so that the peak memory of `memory` is that of training.


def training(cases: dict[str, dict[str, Any]]) -> Measure:
    """Train as `psco pretrain` does, in its memory settings; runs are built when first measured.

    ``measure(case, steps, phases)`` returns the mean seconds of a step, or with ``phases`` the
    fraction of it that each phase takes.
    """
    from benchmarks.speed.trainer import Trainer
    from psco.training.environment import keep_freed_memory

    keep_freed_memory()
    trainers: dict[str, Trainer] = {}

    def measure(case: str, steps: int, phases: bool = False) -> Any:
        if case not in trainers:
            trainers[case] = Trainer(Case.from_json(cases[case]))
        trainer = trainers[case]
        return trainer.fractions(steps) if phases else trainer.seconds(steps)

    return measure


def memory(case: dict[str, Any]) -> Measure:
    """Train; ``measure(steps)`` returns the peak memory of the process in MB."""
    train = training({"only": case})

    def measure(steps: int) -> float:
        train("only", steps)
        return peak_memory() / 1e6

    return measure


def naive(case: dict[str, Any]) -> Measure:
    """Train naively, with glibc's default allocator; ``measure(steps)`` returns seconds."""
    from benchmarks.speed.naive_trainer import NaiveTrainer
    from benchmarks.speed.trainer import WARM_UP

    return partial(NaiveTrainer(Case.from_json(case)).seconds, warm_up=WARM_UP)


def gemm(sizes: list[int]) -> Measure:
    """Multiply matrices; ``measure()`` returns operations per second."""
    from benchmarks.speed.limit import gemm_speed

    return partial(gemm_speed, sizes)


def rules(tasks: int, loop_tasks: int, hidden: int) -> Measure:
    """Classify synthetic tasks; ``measure(rule, loop)`` returns tasks per second.

    Both sides of this comparison are in one process: they share heads, embeddings and allocator.
    """
    from benchmarks.speed.tasks import (
        adapt_loop,
        first_tasks,
        make_heads,
        make_tasks,
        prototype_loop,
        score,
    )

    heads = make_heads(256, hidden, 128)
    task, _ = make_tasks(heads, tasks)
    few = first_tasks(task, loop_tasks)
    runs: dict[tuple[str, bool], tuple[Callable[[], Any], int]] = {
        ("prototype", False): (partial(score, "prototype", task, heads), tasks),
        ("prototype", True): (partial(prototype_loop, task, heads), tasks),
        ("adapt", False): (partial(score, "adapt", task, heads), tasks),
        ("adapt", True): (partial(adapt_loop, few, heads), loop_tasks),
    }

    def measure(rule: str, loop: bool) -> float:
        run, number = runs[rule, loop]
        run()  # warm-up
        begin = time.perf_counter()
        run()
        return number / (time.perf_counter() - begin)

    return measure


def warm(folder: str) -> Measure:
    """Save a classifier and an image; ``measure()`` returns the seconds to classify it, loaded."""
    from PIL import Image

    from psco.classifier import FewShotClassifier
    from psco.evaluation.embed import Encoder

    recipe = Case().resolve()
    drawings = synthetic_images(40, recipe.image.source_size, recipe.image.channels).images[:]
    classifier = FewShotClassifier(Encoder.untrained(recipe), device="cpu")
    classifier.fit(drawings[:20], ["one", "two", "three", "four"] * 5)
    classifier.save(Path(folder) / "classifier.psco")
    Image.fromarray(drawings[20, :, :, 0]).save(Path(folder) / "image.png")

    def measure() -> float:
        classifier.predict([drawings[20]])  # warm-up
        begin = time.perf_counter()
        classifier.predict([drawings[20]])
        return time.perf_counter() - begin

    return measure


SIDES: dict[str, Callable[..., Measure]] = {
    side.__name__: side for side in (training, memory, naive, gemm, rules, warm)
}


def start_side(name: str, **options: Any) -> Worker:
    """Start the process of a side.

    Parameters
    ----------
    name
        One of ``SIDES``.
    options
        Arguments of that side; anything JSON can hold.
    """
    command = [sys.executable, "-m", "benchmarks.speed.sides", name, json.dumps(options)]
    return Worker(name, command)


def peak_memory() -> int:
    """Return the largest resident set of this process so far, in bytes."""
    status = Path("/proc/self/status")
    if status.exists():  # getrusage would include the process that started this one
        line = next(text for text in status.read_text().splitlines() if text.startswith("VmHWM"))
        return 1024 * int(line.split()[1])
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else 1024 * peak


def return_free_memory() -> None:
    """Return free memory to the system, where glibc can; the next warm-up takes it again."""
    if platform.libc_ver()[0] == "glibc":
        ctypes.CDLL(None).malloc_trim(0)


def main() -> None:
    """Measure whenever a line arrives, until stdin ends."""
    # What libraries print goes to stderr, so that stdout holds nothing but answers.
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)
    measure = SIDES[sys.argv[1]](**json.loads(sys.argv[2]))
    print(json.dumps("ready"), file=answers)
    for line in sys.stdin:
        answer = json.dumps(measure(**json.loads(line)))
        return_free_memory()  # before the answer, which lets the next side begin
        print(answer, file=answers)


if __name__ == "__main__":
    main()
