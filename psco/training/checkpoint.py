"""The files of a run folder. They are written atomically, and reading them executes no code.

config.yaml         the resolved recipe
model.safetensors   the online network, for use after training
resume.pt           everything the next step depends on (loaded weights-only)
metrics.csv         the training curves
quality.json        the measurements without labels (``psco.training.quality``)
env.json            software, machine, command
stages/             artefacts of the stages before the first step (``psco.training.stages``)

Every file states its format and contains its checksum (see ``psco.files.checksums``); metrics.csv,
which grows, has a checksum in each row. Files of format 1 have no checksums and can still be read.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import nn

from psco.errors import InputError, PscoError, first_line
from psco.files.atomic import atomic_path, is_leftover
from psco.files.checksums import (
    PLACEHOLDER,
    damaged,
    read_json,
    verify_checksum,
    write_checksum,
    write_json,
    write_with_checksum,
)
from psco.files.disk import system_errors
from psco.files.tensors import sort_metadata_of
from psco.methods import Method
from psco.recipes.recipe import Recipe, check_recipe, read_tree
from psco.training.states import read_state, write_state

FORMAT = 2
READABLE = ("1", "2")
CONFIG, MODEL, RESUME = "config.yaml", "model.safetensors", "resume.pt"
METRICS, ENVIRONMENT = "metrics.csv", "env.json"
LOCK = ".lock"  # exists while a process trains in the folder
CALIBRATION = "calibration.json"  # written by psco.classifier.calibration
_HEADER = "# psco run, format {}, sha256: {}\n"
_COPY = "copy it again from an intact source"


def is_free(folder: Path) -> bool:
    """Whether a new run can start in a folder: it is empty, or a run was killed at its start."""
    if not folder.is_dir():
        return not folder.exists()
    known = (ENVIRONMENT, LOCK)
    return all(path.name in known or is_leftover(path) for path in folder.iterdir())


def start_folder(folder: Path, recipe: Recipe, environment: dict[str, Any]) -> None:
    """Write the files that a run has from its start, the recipe last."""
    write_json(folder / ENVIRONMENT, {"format": FORMAT, **environment}, indent=2)
    _write_recipe(folder, recipe)


def prolong_folder(folder: Path, recipe: Recipe, change: dict[str, Any]) -> None:
    """Write the settings of a longer run into its folder, and the change into ``env.json``.

    ``calibration.json`` is of the shorter run and is removed. The recipe is written last, so that
    after a crash in between the same command does the same again.
    """
    facts = read_environment(folder)
    facts["prolonged"] = [*facts.get("prolonged", []), change]
    write_json(folder / ENVIRONMENT, {"format": FORMAT, **facts}, indent=2)
    (folder / CALIBRATION).unlink(missing_ok=True)
    _write_recipe(folder, recipe)


def _write_recipe(folder: Path, recipe: Recipe) -> None:
    write_with_checksum(folder / CONFIG, _HEADER.format(FORMAT, PLACEHOLDER) + recipe.to_yaml())


def read_recipe(folder: Path) -> Recipe:
    """Return the recipe of a run.

    Raises
    ------
    InputError
        If the folder contains no run, or its recipe has unknown settings.
    PscoError
        If the recipe was damaged or edited.
    """
    path = folder / CONFIG
    if not path.is_file():
        raise InputError(f"{str(folder)!r} is not a run folder: it has no {CONFIG}")
    advice = "restore it, or delete its first line if it was edited on purpose"
    has_checksum = verify_checksum(path, advice)
    try:
        text = path.read_text(encoding="utf-8")
    except UnicodeDecodeError:
        raise damaged(path, "it is not text", advice) from None
    header = re.match(r"# psco run, format (\S+),", text)
    _check_format(path, header[1] if header else "1", has_checksum, advice)
    return check_recipe(read_tree(text, str(path)), str(path))


def read_environment(folder: Path) -> dict[str, Any]:
    """Return the software, machine and command of a run, as ``env.json`` records them.

    Raises
    ------
    InputError
        If there is no such file.
    PscoError
        If it is damaged.
    """
    path = folder / ENVIRONMENT
    if not path.is_file():
        raise InputError(f"{str(folder)!r} has no {ENVIRONMENT}")
    facts, has_checksum = read_json(path, _COPY)
    _check_format(path, str(facts.pop("format", 1)), has_checksum, _COPY)
    return facts


def save_checkpoint(
    folder: Path,
    method: Method,
    recipe: Recipe,
    step: int,
    state: dict[str, Any],
    model: Method | None = None,
) -> None:
    """Write ``resume.pt``, then ``model.safetensors``; each atomically replaces the previous file.

    Parameters
    ----------
    method
        The method; both files contain its state.
    step
        Steps taken.
    state
        Everything else the next step depends on: tensors, numbers, strings, lists and dicts.
    model
        The method to write into ``model.safetensors`` instead, such as one with averaged weights.

    Raises
    ------
    OSError
        If a file cannot be written, for lack of space for example; the previous ones stay.
    """
    content = {**state, "format": FORMAT, "step": step, "method": _tensors(method)}
    write_state(folder / RESUME, content)
    save_model(folder, model or method, recipe, step)


def save_model(folder: Path, method: Method, recipe: Recipe, step: int, half: bool = False) -> None:
    """Write ``model.safetensors``: everything of the method that classification needs.

    ``half`` stores it as `half_precision` does; it is loaded like any other.
    """
    about = {
        "format": str(FORMAT),
        "step": str(step),
        "recipe": recipe.hash(),
        "sha256": PLACEHOLDER,
    }
    with atomic_path(folder / MODEL) as temporary:
        model = {n: v.contiguous() for n, v in model_weights(method).items()}
        model = half_precision(model) if half else model
        with system_errors():
            save_file(model, temporary, metadata=about)
        sort_metadata_of(temporary)
        write_checksum(temporary)


def restore_model(folder: Path, method: Method, recipe: Recipe, step: int) -> None:
    """Rewrite ``model.safetensors`` if it is damaged or of another step.

    That happens when a run is killed between the two files of a checkpoint.
    """
    try:
        stored = _read_model(folder)[1]
    except PscoError:
        stored = None
    if stored != step:
        save_model(folder, method, recipe, step)


def load_resume(folder: Path) -> dict[str, Any] | None:
    """Return the content of ``resume.pt``, or None if there is no such file yet.

    Raises
    ------
    PscoError
        If it is damaged or of an unknown format.
    """
    path = folder / RESUME
    if not path.is_file():
        return None
    advice = f"{_COPY}, or start a new run with --init {folder}"
    state, has_checksum = read_state(path, advice)
    _check_format(path, str(state["format"]), has_checksum, advice)
    return state


def load_model(folder: Path, method: Method) -> int:
    """Load ``model.safetensors`` into a method and return the number of steps it was trained for.

    Raises
    ------
    InputError
        If there is no such file yet, or it is of another architecture.
    PscoError
        If it is damaged or of an unknown format.
    """
    weights, step = _read_model(folder)
    load_model_weights(method, weights, folder / MODEL)
    return step


def _read_model(folder: Path) -> tuple[dict[str, torch.Tensor], int]:
    path = folder / MODEL
    if not path.is_file():
        raise InputError(f"{str(folder)!r} has no {MODEL}: the run has not saved a model yet")
    advice = f"{_COPY}, or rewrite it with --resume"
    has_checksum = verify_checksum(path, advice)
    try:
        with safe_open(path, framework="pt") as file:
            about = file.metadata() or {}
            weights = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
        step = int(about.get("step", 0))
    except (SafetensorError, OSError, ValueError) as error:
        raise damaged(path, first_line(error), advice) from None
    _check_format(path, about.get("format", "1"), has_checksum, advice)
    return weights, step


def load_weights(method: nn.Module, weights: dict[str, torch.Tensor], source: Path) -> None:
    """Load a state dict; an error names the first tensor that does not fit.

    Raises
    ------
    InputError
        If names or shapes differ; the method is then unchanged.
    """
    own, weights = method.state_dict(), _with_current_names(weights)
    for name in sorted(own.keys() | weights.keys()):
        mine, theirs = own.get(name), weights.get(name)
        if mine is None or theirs is None or not _fits(theirs, mine):
            raise InputError(
                f"{source} is of another architecture: {name!r} is {_shape(theirs)} in the file "
                f"and {_shape(mine)} in the recipe"
            )
    method.load_state_dict(weights)


def _with_current_names(weights: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """Rename the tensors of EMA copies as they were called before 0.1."""
    for part in ("backbone", "projector"):
        old, new = f"momentum_{part}.network.", f"ema.network.{part}."
        weights = {
            new + name.removeprefix(old) if name.startswith(old) else name: value
            for name, value in weights.items()
        }
    return weights


def _shape(tensor: torch.Tensor | None) -> str:
    return "missing" if tensor is None else f"{tuple(tensor.shape)} {tensor.dtype}"


def _fits(theirs: torch.Tensor, mine: torch.Tensor) -> bool:
    """Whether a tensor can be copied into another: number formats may differ, kinds may not."""
    return (
        theirs.shape == mine.shape
        and theirs.layout == torch.strided
        and theirs.is_floating_point() == mine.is_floating_point()
        and not theirs.is_complex()
    )


def model_weights(method: Method) -> dict[str, torch.Tensor]:
    """Return the tensors of a method that classification needs."""
    return {n: v for n, v in _tensors(method).items() if not n.startswith(method.training_only)}


def half_precision(weights: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """Return weights with filters and matrices in 16 bits.

    Vectors stay as they are: BatchNorm's variances may be out of range, and vectors are small.
    """
    return {n: v.half() if v.is_floating_point() and v.ndim > 1 else v for n, v in weights.items()}


def load_model_weights(method: Method, weights: dict[str, torch.Tensor], source: Path) -> None:
    """Load what `model_weights` returned; tensors that only training needs stay unchanged."""
    kept = {n: v for n, v in method.state_dict().items() if n.startswith(method.training_only)}
    load_weights(method, {**kept, **weights}, source)


def _tensors(method: Method) -> dict[str, torch.Tensor]:
    return {name: value.detach().cpu() for name, value in method.state_dict().items()}


def _check_format(path: Path, version: str, has_checksum: bool, advice: str) -> None:
    if version not in READABLE:
        raise PscoError(
            f"{path} has format {version}, and this version of psco reads "
            f"{' and '.join(READABLE)}; install the version that wrote it"
        )
    if not has_checksum and version != "1":
        raise damaged(path, "its sha256 is missing", advice)
