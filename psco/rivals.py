"""Several methods trained alike: the same data, recipe and budget, one run folder each."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from psco.errors import InputError
from psco.methods import METHODS
from psco.training import Run, pretrain


def train_methods(
    data: object,
    methods: Sequence[str],
    out: str | Path,
    minutes: float | None = None,
    steps: int | None = None,
    seed: int = 0,
    recipe: str | Path | None = None,
    overrides: Sequence[str] = (),
    root: str | Path | None = None,
    progress: bool = True,
) -> list[Run]:
    """Train methods one after the other; those that are finished in ``out`` are left alone.

    Parameters
    ----------
    data, recipe, overrides, root, seed
        As of `pretrain`, the same for all.
    methods
        Names in `METHODS`.
    out
        Folder in which each method gets a run folder of its name.
    minutes, steps
        The budget of each, one of the two.
    progress
        Show progress on stderr.

    Returns
    -------
    list
        The runs in order; it ends with the first one that was interrupted.

    Raises
    ------
    InputError
        For an unknown method or no budget; then nothing has been trained.
    """
    if (minutes is None) == (steps is None):
        raise InputError("the methods need one budget: --budget 10m or --steps 1500")
    for name in methods:
        METHODS[name]
    if not methods:
        raise InputError("--methods names no method")
    runs: list[Run] = []
    for name in methods:
        run = pretrain(
            data,
            out=Path(out) / name,
            root=root,
            recipe=recipe,
            method=name,
            steps=steps,
            minutes=minutes,
            seed=seed,
            overrides=overrides,
            resume=True,
            title=f"{name}, {len(runs) + 1} of {len(methods)}",
            progress=progress,
        )
        runs.append(run)
        if not run.finished:
            break
    return runs
