"""The run folder: what is in it, written whole or not at all, read without running any code.

config.yaml         the resolved recipe
model.safetensors   the online network, for everything after training
resume.pt           all that the next step depends on (loaded weights-only)
metrics.csv         the training curves
env.json            software, machine, command
"""

from __future__ import annotations

import json
import pickle
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import nn

from psco.data.cache import atomic_path
from psco.errors import InputError, PscoError
from psco.recipe import Recipe, check_recipe, read_tree

FORMAT = 1
CONFIG, MODEL, RESUME = "config.yaml", "model.safetensors", "resume.pt"
METRICS, ENVIRONMENT = "metrics.csv", "env.json"
# What training needs and testing does not; everything else is the model.
TRAINING_ONLY = ("momentum_", "queue.")


def start_folder(folder: Path, recipe: Recipe, environment: dict[str, Any]) -> None:
    """Write the files that exist from the first moment of a run on."""
    with atomic_path(folder / CONFIG) as aside:
        aside.write_text(recipe.to_yaml())
    with atomic_path(folder / ENVIRONMENT) as aside:
        aside.write_text(json.dumps(environment, indent=2) + "\n")


def read_recipe(folder: Path) -> Recipe:
    """Read the recipe of a run.

    Raises
    ------
    InputError
        If the folder holds no run, or its recipe is damaged.
    """
    path = folder / CONFIG
    if not path.is_file():
        raise InputError(f"{str(folder)!r} is not a run folder: it has no {CONFIG}")
    try:
        tree = read_tree(path.read_text(), str(path))
    except UnicodeDecodeError:
        raise InputError(f"{path} is not text") from None
    return check_recipe(tree, str(path))


def save_checkpoint(
    folder: Path, method: nn.Module, recipe: Recipe, step: int, state: dict[str, Any]
) -> None:
    """Write ``resume.pt``, then ``model.safetensors``; each replaces its predecessor at once.

    Parameters
    ----------
    method
        The method; its state goes into both files.
    step
        Steps done.
    state
        What else the next step depends on: tensors, numbers, strings, lists and dicts.
    """
    everything = {name: value.detach().cpu() for name, value in method.state_dict().items()}
    with atomic_path(folder / RESUME) as aside:
        torch.save({**state, "format": FORMAT, "step": step, "method": everything}, aside)
    model = {n: v.contiguous() for n, v in everything.items() if not n.startswith(TRAINING_ONLY)}
    about = {"format": str(FORMAT), "step": str(step), "recipe": recipe.hash()}
    with atomic_path(folder / MODEL) as aside:
        save_file(model, aside, metadata=about)


def load_resume(folder: Path) -> dict[str, Any] | None:
    """Read ``resume.pt``, or give None when the run has not saved one yet."""
    path = folder / RESUME
    if not path.is_file():
        return None
    try:
        state: dict[str, Any] = torch.load(path, map_location="cpu", weights_only=True)
    except (RuntimeError, EOFError, OSError, pickle.UnpicklingError) as error:
        reason = str(error).strip().split("\n")[0]
        raise PscoError(f"{path} cannot be read (damaged or cut short?): {reason}") from None
    if state.get("format") != FORMAT:
        raise PscoError(f"{path} has format {state.get('format')!r}; this version reads {FORMAT}")
    return state


def load_model(folder: Path, method: nn.Module) -> int:
    """Load ``model.safetensors`` into a method, and give the steps it was trained for."""
    path = folder / MODEL
    if not path.is_file():
        raise InputError(f"{str(folder)!r} has no {MODEL}: the run has not saved a model yet")
    try:
        with safe_open(path, framework="pt") as file:
            about = file.metadata() or {}
            weights = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    except (SafetensorError, OSError) as error:
        raise PscoError(f"{path} cannot be read (damaged or cut short?): {error}") from None
    kept = {n: v for n, v in method.state_dict().items() if n.startswith(TRAINING_ONLY)}
    load_weights(method, {**kept, **weights}, path)
    return int(about.get("step", 0))


def load_weights(method: nn.Module, weights: dict[str, torch.Tensor], source: Path) -> None:
    """Load a state dict, and say in one line what does not fit when it is another architecture's.

    Raises
    ------
    InputError
        If names or shapes differ; the method is left as it was.
    """
    own = method.state_dict()
    for name in sorted(own.keys() | weights.keys()):
        mine, theirs = own.get(name), weights.get(name)
        if mine is None or theirs is None or mine.shape != theirs.shape:
            raise InputError(
                f"{source} is of another architecture: {name!r} is {_shape(theirs)} in the file "
                f"and {_shape(mine)} in the recipe"
            )
    method.load_state_dict(weights)


def _shape(tensor: torch.Tensor | None) -> str:
    return "missing" if tensor is None else str(tuple(tensor.shape))
