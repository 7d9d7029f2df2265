"""Peak memory and images a second of every method: python benchmarks/methods.py.

Each method trains at the Omniglot recipe in a process of its own; the processes take turns, so that
a machine that is busy for a while slows all of them. Memory is the peak of one more process each,
which does nothing else. An image counts once, whatever the number of its views.
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

from benchmarks.speed.inputs import Case
from benchmarks.speed.stats import Figure, typical
from benchmarks.speed.turns import Side, take_turns
from psco.methods import METHODS
from psco.progress import Bar
from psco.recipes.build import build_method
from psco.training.environment import environment

LEARNERS = [name for name in METHODS if getattr(METHODS[name], "kind", "") != "floor"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--methods", nargs="+", choices=LEARNERS, default=LEARNERS)
    parser.add_argument("--repeats", type=int, default=7, help="turns of every method")
    parser.add_argument("--steps", type=int, default=5, help="steps in a turn, after a warm-up")
    parser.add_argument("--images", type=int, default=Case().images, help="of the data set")
    parser.add_argument("--set", nargs="+", default=[], metavar="A=B", help="change the recipe")
    parser.add_argument("--json", type=Path, help="also write all numbers here")
    options = parser.parse_args()

    base = Case(overrides=tuple(options.set), images=options.images)
    cases = {name: with_method(base, name) for name in options.methods}
    with Bar("methods", sys.stderr.isatty()) as bar:
        times = measure_times(cases, options.repeats, options.steps, bar)
        memory = measure_memory(cases, options.steps)
    rows = [row(name, case, times[name], memory[name]) for name, case in cases.items()]
    print(
        f"Omniglot recipe, {options.repeats} turns of {options.steps} steps, "
        f"{torch.get_num_threads()} threads{'; ' + ' '.join(options.set) if options.set else ''}\n"
    )
    print(table(rows))
    if options.json:
        facts = {"environment": environment(), "settings": vars(options) | {"json": None}}
        options.json.write_text(json.dumps({**facts, "methods": rows}, indent=2) + "\n")


def with_method(base: Case, name: str) -> Case:
    """Give the case with another method, which must come before its own options."""
    return Case(base.recipe, (f"method.name={name}", *base.overrides), base.images)


def measure_times(
    cases: dict[str, Case], repeats: int, steps: int, bar: Bar
) -> dict[str, list[float]]:
    """Give the seconds of a step in every turn of every method."""
    with ExitStack() as stack:
        turns = {}
        for name, case in cases.items():
            side = stack.enter_context(Side("training", cases={name: asdict(case)}))
            side.turn(case=name, steps=1)  # nobody is measured while another one gets ready
            turns[name] = partial(side.turn, case=name, steps=steps)
        return take_turns(turns, repeats, bar.update)


def measure_memory(cases: dict[str, Case], steps: int) -> dict[str, float]:
    """Give the peak memory of every method in MB."""
    peaks = {}
    for name, case in cases.items():
        with Side("memory", case=asdict(case)) as side:
            peaks[name] = side.turn(steps=steps)
    return peaks


def row(name: str, case: Case, seconds: list[float], peak: float) -> dict[str, Any]:
    """Put the numbers of a method together."""
    recipe = case.settled()
    episode = build_method(recipe).episode
    images = recipe.train.accumulate * (episode.images if episode else recipe.train.batch_size)
    return {
        "method": name,
        "images_per_step": images,
        "images_per_s": asdict(typical([images / each for each in seconds])),
        "step_ms": asdict(typical([1e3 * each for each in seconds])),
        "peak_memory_mb": peak,
    }


def table(rows: list[dict[str, Any]]) -> str:
    """Write the numbers as Markdown; a spread is the inter-quartile range over the median."""
    lines = [
        "| method | images/s | spread | ms a step | images a step | peak memory, MB |",
        "|---|--:|--:|--:|--:|--:|",
    ]
    for facts in rows:
        speed, step = Figure(**facts["images_per_s"]), Figure(**facts["step_ms"])
        spread = "–" if speed.spread is None else f"{100 * speed.spread:.0f} %"
        lines.append(
            f"| {facts['method']} | {speed.value:.0f} | {spread} | {step.value:.0f} "
            f"| {facts['images_per_step']} | {facts['peak_memory_mb']:.0f} |"
        )
    return "\n".join(lines)


if __name__ == "__main__":
    main()
