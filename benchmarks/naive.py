"""The training step as one would write it first, alone: python benchmarks/naive.py [--steps 10].

The code is in benchmarks/speed/naive.py, inside the package, so that `psco bench` can divide by it
wherever psco is installed. This script runs it at the Omniglot recipe with the allocator as it is,
prints images a second, and, with --profile, where the time of the training process goes.
"""

from __future__ import annotations

import argparse
from contextlib import nullcontext

import torch

from benchmarks.speed.inputs import Case
from benchmarks.speed.naive import NaiveTrainer
from benchmarks.speed.trainer import WARM_UP


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=10)
    parser.add_argument("--set", nargs="+", default=[], metavar="A=B", help="change the recipe")
    parser.add_argument("--profile", action="store_true", help="list the costliest operations")
    options = parser.parse_args()

    trainer = NaiveTrainer(Case(overrides=tuple(options.set)))
    with torch.profiler.profile() if options.profile else nullcontext() as profile:
        seconds = trainer.seconds(options.steps, WARM_UP)
    if profile is not None:
        print(profile.key_averages().table(sort_by="self_cpu_time_total", row_limit=15))
    print(
        f"{trainer.batch_size / seconds:.0f} images/s, {1e3 * seconds:.0f} ms a step of "
        f"{trainer.batch_size} images, {torch.get_num_threads()} threads"
    )


if __name__ == "__main__":
    main()
