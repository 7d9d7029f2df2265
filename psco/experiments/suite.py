"""Train several methods with the same data, recipe and budget, one run folder each."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from psco.classifier.pretraining import pretrain
from psco.data import ImageSet, load_dataset
from psco.errors import InputError
from psco.methods import METHODS
from psco.recipes.build import build_method
from psco.recipes.recipe import Recipe, default_recipe, with_flags
from psco.training.inputs import feed_for, labels_for
from psco.training.run import Run
from psco.training.settings import resolve_settings


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
    """Train methods one after another; runs that are finished in ``out`` are skipped.

    Parameters
    ----------
    data, recipe, overrides, root, seed
        See `pretrain`; the same for all methods.
    methods
        Names in `METHODS`.
    out
        Folder for the run folders, which are named after the methods.
    minutes, steps
        The budget of each method, one of the two.
    progress
        Show progress on stderr.

    Returns
    -------
    list
        The runs in order, up to and including the first one that was interrupted.

    Raises
    ------
    InputError
        If a method is unknown, there is no budget, or one of the methods cannot be trained with
        these settings; then none has been trained.
    """
    if (minutes is None) == (steps is None):
        raise InputError("set one budget for all methods: --budget 10m or --steps 1500")
    if not methods:
        raise InputError("--methods names no method")
    for name in methods:
        METHODS[name]
    recipe = recipe or default_recipe(data)
    recipes = []
    for name in methods:
        changes = with_flags(overrides, name, steps=steps, minutes=minutes, seed=seed)
        recipes.append(resolve_settings(Path(out) / name, data, recipe, changes, resume=True))
    images = _load(data, recipes, root, progress)
    runs: list[Run] = []
    for name in methods:
        run = pretrain(
            images,
            out=Path(out) / name,
            recipe=recipe,
            method=name,
            steps=steps,
            minutes=minutes,
            seed=seed,
            overrides=overrides,
            root=root,
            resume=True,
            title=f"{name} ({len(runs) + 1} of {len(methods)})",
            progress=progress,
        )
        runs.append(run)
        if not run.finished:
            break
    return runs


def _load(
    data: object, recipes: Sequence[Recipe], root: str | Path | None, progress: bool
) -> ImageSet:
    """Load the training images; raise InputError if they do not suit one of the methods."""
    image = recipes[0].image
    images = load_dataset(
        data, "train", root, size=image.source_size, channels=image.channels, progress=progress
    )
    for recipe in recipes:
        method = build_method(recipe)
        visible = labels_for(method, images, recipe)
        if method.kind != "baseline":
            feed_for(method, visible, recipe.train.batch_size, recipe.train.seed)
    return images
