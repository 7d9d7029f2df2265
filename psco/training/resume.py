"""The state in ``resume.pt``, checked against the run before anything uses it.

A checksum shows that a file is what was written, not who wrote it. Optimisers trust their state: a
momentum of another shape or with overlapping memory makes them write outside of it.
"""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.optim import Optimizer

from psco.errors import PscoError, quoted

_ADVICE = "copy the file again from an intact source, or start a new run with --init"
_REQUIRED = ("method", "optimizer", "step", "seconds", "data")


def check_state(state: dict[str, Any], source: Path) -> None:
    """Raise PscoError unless every entry has the type and the range that a run writes.

    Parameters
    ----------
    state
        The content of the file; the tensors are compared with the run where they are loaded.
    source
        The file, for the message.
    """
    for name in _REQUIRED:
        if name not in state:
            raise _bad(source, f"it has no {name!r}")
    _check_count(state["step"], "step", source)
    _check_number(state["seconds"], "seconds", source)
    if not isinstance(state["data"], str):
        raise _bad(source, f"data must be text, got {quoted(state['data'])}")
    _check_tensors(state["method"], "method", source)
    for name, kept in (("average", "steps"), ("best", "step")):
        if name in state:
            part = state[name]
            if not isinstance(part, dict) or not {kept, "weights"} <= part.keys():
                raise _bad(source, f"{name} is incomplete")
            _check_count(part[kept], f"{name}.{kept}", source)
            _check_tensors(part["weights"], f"{name}.weights", source)
            for score in ("score", "latest"):
                if part.get(score) is not None:
                    _check_number(part[score], f"{name}.{score}", source)
            if not isinstance(part.get("settled", True), bool):
                raise _bad(source, f"{name}.settled must be true or false")


def check_part(state: dict[str, Any], name: str, source: Path) -> dict[str, Any]:
    """Return an entry that the recipe of the run requires."""
    if name not in state:
        raise _bad(source, f"it has no {name!r}, which the recipe requires")
    part: dict[str, Any] = state[name]
    return part


def load_optimizer(optimizer: Optimizer, state: Any, source: Path) -> None:
    """Load what ``optimizer.state_dict()`` returned; the settings stay those of the recipe.

    Raises
    ------
    PscoError
        If a group, a parameter or a tensor is not one of this optimiser; it is then unchanged.
    """
    own = optimizer.state_dict()
    if not _is_dict(state) or not _is_dict(states := state.get("state")):
        raise _bad(source, "its optimizer is not one")
    groups = state.get("param_groups")
    if not isinstance(groups, list) or not all(map(_is_dict, groups)):
        raise _bad(source, "its optimizer has no groups")
    if [g.get("params") for g in groups] != [g["params"] for g in own["param_groups"]]:
        raise _bad(source, "its optimizer is of other parameters")
    for group in groups:
        for name, value in group.items():
            if name != "params":
                _check_setting(name, value, source)
    parameters = [p for group in optimizer.param_groups for p in group["params"]]
    checked = {}
    for number, entries in states.items():
        if type(number) is not int or not 0 <= number < len(parameters) or not _is_dict(entries):
            raise _bad(source, f"its optimizer has no parameter {quoted(number)}")
        checked[number] = {
            name: _checked_entry(value, parameters[number], f"{number}.{name}", source)
            for name, value in entries.items()
        }
    expected = {frozenset(entries) for entries in checked.values()}
    if len(expected) > 1 or not expected <= {frozenset(_entries(optimizer))}:
        raise _bad(source, f"its optimizer is not {type(optimizer).__name__}")
    optimizer.load_state_dict({"state": checked, "param_groups": own["param_groups"]})


def _entries(optimizer: Optimizer) -> tuple[str, ...]:
    is_adam = isinstance(optimizer, torch.optim.Adam)
    return ("step", "exp_avg", "exp_avg_sq") if is_adam else ("momentum_buffer",)


def _checked_entry(value: Any, parameter: Tensor, name: str, source: Path) -> Any:
    """Return one tensor of the optimiser in memory of its own, laid out as its parameter."""
    if name.endswith(".step"):
        number = value.item() if isinstance(value, Tensor) and value.numel() == 1 else value
        _check_number(number, f"optimizer.{name}", source)
        return torch.tensor(float(number))
    if value is None:  # SGD without momentum
        return None
    if not isinstance(value, Tensor) or value.layout != torch.strided:
        raise _bad(source, f"optimizer.{name} is not a tensor")
    if value.shape != parameter.shape or value.dtype != parameter.dtype:
        raise _bad(
            source,
            f"optimizer.{name} is {tuple(value.shape)} {value.dtype}, and its parameter is "
            f"{tuple(parameter.shape)} {parameter.dtype}",
        )
    if not value.is_contiguous() and value.stride() != parameter.stride():
        raise _bad(source, f"optimizer.{name} has the strides {value.stride()}")
    if not value.isfinite().all():
        raise _bad(source, f"optimizer.{name} is not finite")
    return torch.empty_like(parameter, requires_grad=False).copy_(value)


def _check_setting(name: Any, value: Any, source: Path) -> None:
    if value is None or isinstance(value, bool):
        return
    pair = value if isinstance(value, (tuple, list)) and len(value) == 2 else (value,)  # betas
    for each in pair:
        _check_number(each, f"optimizer.{quoted(name)[1:-1]}", source)


def _check_tensors(tensors: Any, name: str, source: Path) -> None:
    if not _is_dict(tensors) or not all(
        isinstance(key, str) and isinstance(value, Tensor) and value.layout == torch.strided
        for key, value in tensors.items()
    ):
        raise _bad(source, f"{name} must be tensors by name")


def _check_count(value: Any, name: str, source: Path) -> None:
    if type(value) is not int or not 0 <= value < 2**53:
        raise _bad(source, f"{name} must be a whole number from 0, got {quoted(value)}")


def _check_number(value: Any, name: str, source: Path) -> None:
    is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
    if not is_number or not math.isfinite(value) or value < 0:
        raise _bad(source, f"{name} must be a finite number from 0, got {quoted(value)}")


def _is_dict(value: Any) -> bool:
    return isinstance(value, dict)


def _bad(source: Path, how: str) -> PscoError:
    return PscoError(f"{source} is not of this run: {how}; {_ADVICE}")
