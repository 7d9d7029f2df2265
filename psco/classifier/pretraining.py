"""Pretraining as users call it: train a run, then calibrate the scores of its classifiers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any

from psco.classifier.calibration import calibrate
from psco.classifier.validation import validator
from psco.errors import unknown_name
from psco.evaluation.embed import Encoder
from psco.files.checksums import write_json
from psco.recipes.recipe import Override, Recipe, with_flags
from psco.training.checkpoint import CALIBRATION
from psco.training.run import Run
from psco.training.trainer import Trainer
from psco.views import View


def pretrain(
    data: object,
    *,
    out: str | Path,
    recipe: str | Path | Recipe | None = None,
    method: str | None = None,
    epochs: float | None = None,
    steps: int | None = None,
    minutes: float | None = None,
    seed: int | None = None,
    init: str | Path | None = None,
    overrides: Sequence[str | Override] = (),
    resume: bool = False,
    validation: object = None,
    **options: Any,
) -> Run:
    """Train a method on unlabelled images.

    Parameters
    ----------
    data
        Anything that `load_dataset` takes: the name of a data set, a folder, an array, ...
    out
        Run folder to create.
    recipe
        A recipe, its name or its file; by default see `choose_recipe`.
    method, epochs, steps, minutes, seed
        Settings that win over the recipe: the method, the length of the run (one of the three), the
        seed. ``psco.recipes.recipe`` explains which settings of a recipe hold for another method.
    init
        Initial weights of the backbone: a .safetensors, .pth or .pt file (torchvision, timm, ...)
        or a run folder. A resumed run does not need it again.
    overrides
        Any other settings that win over the recipe, as ``"method.shots=5"``.
    resume
        Continue the run in ``out``, if there is one.
    validation
        Labelled images of other classes for ``train.select: validation``, anything that
        `load_dataset` takes; by default the val split of a named data set.
    **options
        Any other option of `psco.training.trainer.Trainer`: ``root``, ``views``, ``workers``,
        ``devices``, ``checkpoint_minutes``, ``loggers``, ``progress``, ...

    Raises
    ------
    InputError
        If an argument is wrong; then nothing has been written.
    PscoError
        If the loss is not finite or a file cannot be written; the last good checkpoint stays.
    TypeError
        If there is no such option.
    """
    known = {option.name for option in fields(Trainer) if option.kw_only and option.init}
    for name in options:
        if name not in known:
            raise TypeError(f"pretrain: {unknown_name('option', name, known)}")
    changes = with_flags(overrides, method, epochs, steps, minutes, seed, init)
    root = options.get("root")
    options.setdefault("validator", lambda recipe: validator(recipe, data, validation, root))
    options.setdefault("on_finish", _calibrate)
    return Trainer(data, out, recipe, changes, resume, **options).run()


def _calibrate(trainer: Trainer, run: Run) -> None:
    """Write ``calibration.json`` for a finished run that has none, if it can be calibrated.

    That takes a trained network with features, two images, and a view whose parts are known: a
    function of the user cannot be made milder. `calibrate_run` calibrates with other views.
    """
    file = run.folder / CALIBRATION
    view = trainer.pair.view_a
    if trainer.loop is None or file.is_file():
        return
    if len(trainer.images) < 2 or not isinstance(view, View):
        return
    encoder = Encoder(trainer.loop.copy_model(), run.recipe, run.folder, run.steps)
    if encoder.method.has_features:
        write_json(file, calibrate(encoder, trainer.images.images, view=view).as_dict())
