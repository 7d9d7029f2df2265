"""Measure peak memory and images per second of every training method.

    python -m benchmarks.methods [--repeats 12] [--json FILE]

Each method trains at the Omniglot recipe in its own process, and the processes take turns. Memory
is the peak of a further process that does nothing else. An image counts once, whatever the number
of its views.
"""

from __future__ import annotations

import argparse
import json
import sys
from contextlib import ExitStack
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

import torch

from benchmarks.speed.settings import QUICK
from benchmarks.speed.sides import start_side
from benchmarks.timing.cases import Case
from benchmarks.timing.stats import absolute, ratio
from benchmarks.timing.turns import describe_environment, take_turns
from psco.methods import METHODS
from psco.progress import Bar
from psco.recipes.build import build_method

LEARNERS = [name for name in METHODS if METHODS[name].kind != "baseline"]
REFERENCE = "psco"  # the method whose step the others are compared with


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--methods", nargs="+", choices=LEARNERS, default=LEARNERS)
    parser.add_argument("--repeats", type=int, default=12, help="turns")
    parser.add_argument("--steps", type=int, default=5, help="steps of a method in a turn")
    parser.add_argument("--images", type=int, default=Case().images, help="of the data set")
    parser.add_argument("--set", nargs="+", default=[], metavar="A=B", help="change the recipe")
    parser.add_argument("--json", type=Path, help="also write all numbers here")
    parser.add_argument("--quick", action="store_true", help="toy sizes, to see that it runs")
    options = parser.parse_args()
    if options.quick:
        small = [o for o in QUICK.base.overrides if not o.startswith("method.")]
        options.set = [*small, *options.set]
        options.images, options.repeats, options.steps = 1200, 1, 1

    base = Case(overrides=tuple(options.set), images=options.images)
    cases = {name: with_method(base, name) for name in options.methods}
    with Bar("methods", sys.stderr.isatty()) as bar:
        times = measure_times(cases, options.repeats, options.steps, bar)
        memory = measure_memory(cases, options.steps)
    rows = [summarise(name, case, times, memory[name]) for name, case in cases.items()]
    print(
        f"Omniglot recipe, {options.repeats} turns of {options.steps} steps, "
        f"{torch.get_num_threads()} threads{'; ' + ' '.join(options.set) if options.set else ''}\n"
    )
    print(to_table(rows))
    if options.json:
        facts = {
            "environment": describe_environment("benchmarks.methods"),
            "settings": vars(options) | {"json": None},
        }
        options.json.write_text(json.dumps({**facts, "methods": rows}, indent=2) + "\n")


def with_method(base: Case, name: str) -> Case:
    """Return the case with another method, which must precede overrides of its options."""
    return Case(base.recipe, (f"method.name={name}", *base.overrides), base.images)


def measure_times(
    cases: dict[str, Case], turns: int, steps: int, bar: Bar
) -> dict[str, list[float]]:
    """Return the seconds of a step of every method in every turn."""
    with ExitStack() as stack:
        sides = {}
        for name, case in cases.items():
            worker = stack.enter_context(start_side("training", cases={name: asdict(case)}))
            worker.measure(case=name, steps=1)  # nothing is measured while others still start
            sides[name] = partial(worker.measure, case=name, steps=steps)
        return take_turns(sides, turns, bar.update)


def measure_memory(cases: dict[str, Case], steps: int) -> dict[str, float]:
    """Return the peak memory of every method in MB."""
    peaks = {}
    for name, case in cases.items():
        with start_side("memory", case=asdict(case)) as worker:
            peaks[name] = worker.measure(steps=steps)
    return peaks


def summarise(name: str, case: Case, times: dict[str, list[float]], peak: float) -> dict[str, Any]:
    """Return the numbers of a method."""
    recipe = case.resolve()
    episode = build_method(recipe).episode
    images = recipe.train.accumulate * (episode.images if episode else recipe.train.batch_size)
    seconds = times[name]
    facts: dict[str, Any] = {
        "method": name,
        "images_per_step": images,
        "images_per_s": asdict(absolute([images / each for each in seconds])),
        "step_ms": asdict(absolute([1e3 * each for each in seconds])),
        "peak_memory_mb": peak,
    }
    if REFERENCE in times:
        facts[f"step_beside_{REFERENCE}"] = asdict(ratio(seconds, times[REFERENCE]))
    return facts


def to_table(rows: list[dict[str, Any]]) -> str:
    """Return the numbers as a Markdown table."""
    lines = [
        f"| method | images/s | ms a step | step / that of {REFERENCE}, 95 % interval "
        "| images a step | peak memory, MB |",
        "|---|--:|--:|--:|--:|--:|",
    ]
    for facts in rows:
        beside = facts.get(f"step_beside_{REFERENCE}", {})
        compared = "–"
        if beside.get("interval"):
            low, high = beside["interval"]
            compared = f"{beside['value']:.2f} ({low:.2f} to {high:.2f})"
        lines.append(
            f"| {facts['method']} | {facts['images_per_s']['value']:.0f} "
            f"| {facts['step_ms']['value']:.0f} | {compared} "
            f"| {facts['images_per_step']} | {facts['peak_memory_mb']:.0f} |"
        )
    return "\n".join(lines)


if __name__ == "__main__":
    main()
