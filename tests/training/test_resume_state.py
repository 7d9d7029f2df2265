"""A crafted ``resume.pt`` with a right checksum: one line, before an optimiser sees any of it."""

from __future__ import annotations

import shutil
import zipfile
from pathlib import Path
from typing import Any

import pytest
import torch
from child import train

from psco.errors import PscoError
from psco.files.checksums import PLACEHOLDER, hash_file, write_checksum
from psco.training.checkpoint import load_resume


@pytest.fixture(scope="module")
def overrides(tiny) -> list[str]:
    return [*tiny, "train.steps=4", "train.log_steps=1"]


@pytest.fixture(scope="module")
def original(overrides, tmp_path_factory) -> Path:
    return train(tmp_path_factory.mktemp("crafted") / "run", overrides).folder


@pytest.fixture
def run(original, tmp_path) -> Path:
    return Path(shutil.copytree(original, tmp_path / "run"))


def craft(run: Path, state: Any) -> None:
    """Write a state as psco does, with its checksum."""
    torch.save(state, run / "resume.pt")
    with zipfile.ZipFile(run / "resume.pt", "a") as archive:
        archive.comment = f"psco resume, format 2, sha256: {PLACEHOLDER}".encode()
    write_checksum(run / "resume.pt")


def momentum(state: dict[str, Any], value: Any) -> None:
    state["optimizer"]["state"][0]["momentum_buffer"] = value


def group(state: dict[str, Any], name: str, value: Any) -> None:
    state["optimizer"]["param_groups"][0][name] = value


CRAFTED = {
    "a small momentum": lambda s: momentum(s, torch.zeros(1)),
    "another number format": lambda s: momentum(s, torch.zeros(8, 1, 3, 3).double()),
    "overlapping memory": lambda s: momentum(s, torch.zeros(1).expand(8, 1, 3, 3)),
    "a sparse momentum": lambda s: momentum(s, torch.zeros(8, 1, 3, 3).to_sparse()),
    "an infinite momentum": lambda s: momentum(s, torch.full((8, 1, 3, 3), float("inf"))),
    "text for a momentum": lambda s: momentum(s, "momentum"),
    "another optimiser": lambda s: s["optimizer"]["state"][0].update(exp_avg=torch.zeros(8)),
    "an unknown parameter": lambda s: s["optimizer"]["state"].update({999: {}}),
    "a parameter by name": lambda s: s["optimizer"]["state"].update(weight={}),
    "no groups": lambda s: s["optimizer"].update(param_groups=[]),
    "groups that are numbers": lambda s: s["optimizer"].update(param_groups=[1]),
    "other parameters": lambda s: group(s, "params", [0]),
    "parameters that are tensors": lambda s: group(s, "params", torch.zeros(3)),
    "a rate that is not finite": lambda s: group(s, "lr", float("nan")),
    "a rate that is text": lambda s: group(s, "lr", "fast"),
    "a rate that is a tensor": lambda s: group(s, "lr", torch.zeros(7)),
    "an optimiser that is a list": lambda s: s.update(optimizer=[]),
    "no optimiser": lambda s: s.pop("optimizer"),
    "no weights": lambda s: s.pop("method"),
    "weights that are numbers": lambda s: s.update(method={"backbone.0.weight": 3}),
    "weights without names": lambda s: s.update(method={3: torch.zeros(3)}),
    "complex weights": lambda s: s["method"].update(
        {"backbone.0.weight": s["method"]["backbone.0.weight"].to(torch.complex64)}
    ),
    "a step beyond the end": lambda s: s.update(step=5),
    "a negative step": lambda s: s.update(step=-1),
    "a step that is a fraction": lambda s: s.update(step=1.5),
    "a step that is true": lambda s: s.update(step=True),
    "a step that is a tensor": lambda s: s.update(step=torch.tensor(3)),
    "an endless time": lambda s: s.update(seconds=float("inf")),
    "no data": lambda s: s.pop("data"),
    "data that are a tensor": lambda s: s.update(data=torch.zeros(2)),
}


@pytest.mark.parametrize("name", CRAFTED)
def test_a_crafted_state_is_one_line_and_changes_nothing(name, run, overrides):
    state = load_resume(run)
    CRAFTED[name](state)
    craft(run, state)
    before = {path.name: hash_file(path) for path in run.iterdir()}
    with pytest.raises(PscoError) as caught:
        train(run, overrides)
    assert str(run / "resume.pt") in str(caught.value) or "are not those of" in str(caught.value)
    assert {path.name: hash_file(path) for path in run.iterdir()} == before


@pytest.mark.parametrize("state", [[], 3, torch.zeros(3), {"format": torch.zeros(2)}, None])
def test_a_file_that_holds_no_state_is_one_line(run, overrides, state):
    craft(run, state)
    with pytest.raises(PscoError, match=r"resume\.pt"):
        train(run, overrides)


def test_a_compressed_file_is_refused_before_it_is_unpacked(run, overrides):
    with zipfile.ZipFile(run / "resume.pt") as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    with zipfile.ZipFile(run / "resume.pt", "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in members.items():
            archive.writestr(name, content + bytes(10_000_000))
        archive.comment = f"psco resume, format 2, sha256: {PLACEHOLDER}".encode()
    write_checksum(run / "resume.pt")
    with pytest.raises(PscoError, match="it is compressed"):
        train(run, overrides)


def test_a_state_whose_memory_is_laid_out_otherwise_continues_with_the_same_bits(
    run, overrides, original
):
    state = load_resume(run)
    for entries in state["optimizer"]["state"].values():
        entries["momentum_buffer"] = entries["momentum_buffer"].contiguous()
    state["step"] = 3
    craft(run, state)
    (run / "model.safetensors").unlink()
    longer = [*overrides, "train.steps=5"]
    other = Path(shutil.copytree(original, run.with_name("other")))
    craft(other, {**load_resume(other), "step": 3})
    for folder in (run, other):
        train(folder, longer)
    assert hash_file(run / "model.safetensors") == hash_file(other / "model.safetensors")
