"""Compare the training step of two source trees, turn by turn.

    python -m benchmarks.compare_checkouts OLD NEW [--within 0.03]

OLD and NEW are folders that hold a package ``psco``, such as two git worktrees. Each side is a
process that trains its own package through `psco.pretrain`, the part of the public interface that
both have, so it does not matter how their modules are laid out. The sides alternate, OLD NEW, then
NEW OLD. Each turn yields one ratio; the median over all turns is printed with its 95 % interval.
The memory layout of a process affects its speed a little, so every round starts new processes. If
the interval is too wide to decide, use more rounds.

With --within X the exit code is 1 unless the whole interval lies below 1 + X.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
from dataclasses import asdict
from pathlib import Path

from benchmarks.timing.stats import FEWEST_TURNS, absolute, ratio
from benchmarks.timing.turns import (
    Progress,
    Worker,
    describe_environment,
    subprogress,
    take_turns,
)
from psco.errors import InputError, PscoError
from psco.progress import Bar

SIDE = Path(__file__).with_name("checkout_side.py")
SIDES = ("old", "new")
QUICK = [
    "backbone.width=4",
    "heads={hidden: 16, out: 8}",
    "method.queue_size=32",
    "train.batch_size=8",
]
Times = dict[str, list[float]]  # by side, seconds of a step, one value a turn


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("old", type=Path, metavar="OLD", help="source tree to compare with")
    parser.add_argument("new", type=Path, metavar="NEW", help="source tree in question")
    parser.add_argument("--recipe", default="omniglot")
    parser.add_argument("--set", nargs="+", default=[], metavar="A=B", help="change the recipe")
    parser.add_argument("--images", type=int, default=8192, help="synthetic images to train on")
    parser.add_argument("--data", help="a named data set to train on, instead of synthetic images")
    parser.add_argument("--rounds", type=int, default=3, help="each with new processes")
    parser.add_argument("--turns", type=int, default=12, help="of a round")
    parser.add_argument("--steps", type=int, default=6, help="of each side in a turn; even")
    parser.add_argument("--within", type=float, metavar="X", help="fail unless below 1 + X")
    parser.add_argument("--json", type=Path, help="also write all times here")
    parser.add_argument("--quick", action="store_true", help="toy sizes, to see that it runs")
    options = parser.parse_args()
    if options.quick:
        options.set = [*QUICK, *options.set]
        options.images, options.rounds = 64, 1
        options.turns, options.steps = FEWEST_TURNS, 2
    if options.steps < 2 or options.steps % 2:
        parser.error(f"--steps must be even and at least 2, got {options.steps}")
    try:
        with Bar("compare", sys.stderr.isatty()) as bar:
            rounds = [
                measure_round(options, subprogress(bar.update, number, options.rounds))
                for number in range(options.rounds)
            ]
        sys.exit(conclude(options, rounds))
    except PscoError as error:
        print(f"error: {error}", file=sys.stderr)
        sys.exit(error.exit_code)


def measure_round(options: argparse.Namespace, on_progress: Progress) -> Times:
    """Start both processes, and return the seconds of a step in every turn."""
    trees = [checkout_root(tree) for tree in (options.old, options.new)]
    with start(trees[0], options) as old, start(trees[1], options) as new:
        for worker in (old, new):
            worker.wait()  # nothing is measured while another process still starts
        sides = {name: worker.measure for name, worker in zip(SIDES, (old, new), strict=True)}
        return take_turns(sides, options.turns, on_progress)


def checkout_root(tree: Path) -> Path:
    """Return the absolute path of a source tree.

    Raises
    ------
    InputError
        If it holds no package ``psco``.
    """
    if not (tree / "psco" / "__init__.py").is_file():
        raise InputError(f"{tree} holds no psco/__init__.py; pass the root of a source tree")
    return tree.resolve()


def start(tree: Path, options: argparse.Namespace) -> Worker:
    """Start the process of one side, which imports ``psco`` from its tree and nowhere else."""
    settings = {
        "tree": str(tree),
        "recipe": options.recipe,
        "overrides": options.set,
        "images": options.images,
        "data": options.data,
        "steps": options.steps,
    }
    command = [sys.executable, str(SIDE), json.dumps(settings)]
    return Worker(str(tree), command, {"PYTHONPATH": str(tree)})


def conclude(options: argparse.Namespace, rounds: list[Times]) -> int:
    """Print the comparison, write the JSON, and return the exit code."""
    times = {side: [seconds for each in rounds for seconds in each[side]] for side in SIDES}
    change = ratio(times["new"], times["old"])
    for side in SIDES:
        step = absolute(times[side])
        assert step.value is not None
        spread = "" if step.spread is None else f" (spread {step.spread:.0%})"
        print(f"{side}: {1e3 * step.value:.1f} ms a step{spread}")
    if change.value is None or change.interval is None:
        raise PscoError(change.refusal)
    low, high = change.interval
    each = ", ".join(f"{statistics.median(ratios(r)):.3f}" for r in rounds)
    print(
        f"new / old: {change.value:.3f}, 95 % interval {low:.3f} to {high:.3f} over "
        f"{len(times['new'])} turns; medians of the rounds: {each}"
    )
    if options.json:
        facts = {
            "environment": describe_environment("benchmarks.compare_checkouts"),
            "ratio": asdict(change),
            "rounds": rounds,
        }
        options.json.write_text(json.dumps(facts, indent=1) + "\n")
    if options.within is None:
        return 0
    is_within = high < 1 + options.within
    print(f"within {options.within:.1%}: {'yes' if is_within else 'not shown'}")
    return 0 if is_within else 1


def ratios(times: Times) -> list[float]:
    """Return new / old of every turn."""
    return [new / old for new, old in zip(times["new"], times["old"], strict=True)]


if __name__ == "__main__":
    main()
