"""The files of a run folder: checksums verified before parsing, old formats still readable."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

import psco
from psco.classifier.calibration import calibrate_run, read_calibration
from psco.files.checksums import PLACEHOLDER, hash_file, verify_checksum, write_checksum, write_json
from psco.training.checkpoint import (
    load_model,
    load_resume,
    read_environment,
    read_recipe,
    restore_model,
)
from psco.training.logging import csv_logger, read_metrics

OLD = Path(__file__).parents[1] / "fixtures" / "run-format-1"
OLD_IMAGES = np.random.default_rng(0).integers(0, 256, (20, 16, 16, 1), dtype=np.uint8)


RECIPE = psco.load_recipe(OLD / "config.yaml")
METHOD = psco.Encoder.untrained(RECIPE).method


def model_of(folder: Path) -> dict[str, torch.Tensor]:
    load_model(folder, METHOD)
    return {name: value.clone() for name, value in METHOD.state_dict().items()}


READERS: dict[str, Callable[[Path], Any]] = {
    "config.yaml": read_recipe,
    "env.json": read_environment,
    "resume.pt": load_resume,
    "model.safetensors": model_of,
    "calibration.json": read_calibration,
    "metrics.csv": lambda folder: read_metrics(folder / "metrics.csv"),
}


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small run folder with every kind of file; tests must not change it."""
    folder = tmp_path_factory.mktemp("runs") / "run"
    psco.pretrain(OLD_IMAGES, out=folder, recipe=RECIPE, progress=False)
    calibrate_run(folder, OLD_IMAGES)
    return folder


@pytest.fixture
def copy(run, tmp_path) -> Path:
    """A copy of the run folder that tests may damage."""
    return Path(shutil.copytree(run, tmp_path / "copy"))


def equal(one: Any, other: Any) -> bool:
    """Compare what was read, down to the bits of the tensors."""
    if isinstance(one, torch.Tensor):
        return torch.equal(one, other)
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(equal(one[n], other[n]) for n in one)
    return bool(one == other)


def flipped(content: bytes, bit: int) -> bytes:
    changed = bytearray(content)
    changed[bit // 8] ^= 1 << bit % 8
    return bytes(changed)


def is_reported_or_harmless(folder: Path, name: str, content: bytes, whole: Any) -> bool:
    """Whether reading raises one line that names the file, or returns what was written."""
    (folder / name).write_bytes(content)
    try:
        return equal(READERS[name](folder), whole)
    except psco.PscoError as error:
        return name in str(error) and "damaged" in str(error) and "\n" not in str(error)


# ------------------------------------------------------------------------------------- damage


@pytest.mark.parametrize("name", READERS)
def test_a_flipped_bit_anywhere_is_reported(run, copy, name):
    content = (run / name).read_bytes()
    random = np.random.default_rng(sum(name.encode()))
    for bit in random.integers(0, 8 * len(content), 30).tolist():
        (copy / name).write_bytes(flipped(content, bit))
        with pytest.raises(psco.PscoError, match=rf"{name} is damaged or cut short: ") as caught:
            READERS[name](copy)
        assert "\n" not in str(caught.value)


@pytest.mark.parametrize("name", READERS)
def test_a_flipped_bit_near_either_end_is_reported_or_changes_nothing(run, copy, name):
    """Damage to the checksum or to the format number itself is noticed as well."""
    content, whole = (run / name).read_bytes(), READERS[name](run)
    bits = 8 * len(content)
    for bit in [*range(0, min(bits, 1600), 5), *range(max(0, bits - 1000), bits, 5)]:
        assert is_reported_or_harmless(copy, name, flipped(content, bit), whole), bit


@pytest.mark.parametrize("name", sorted(READERS.keys() - {"metrics.csv"}))
def test_a_truncated_file_is_reported(run, copy, name):
    content = (run / name).read_bytes()
    random = np.random.default_rng(1)
    places = [0, 1, 8, 50, 110, len(content) - 1, *random.integers(0, len(content), 24).tolist()]
    for place in places:
        (copy / name).write_bytes(content[:place])
        with pytest.raises(psco.PscoError, match=name):
            READERS[name](copy)


def test_a_config_that_was_edited_is_read_without_its_first_line(copy):
    config = copy / "config.yaml"
    edited = config.read_text().replace("seed: 0", "seed: 1")
    config.write_text(edited)
    with pytest.raises(psco.PscoError, match="delete its first line if it was edited on purpose"):
        read_recipe(copy)
    config.write_text(edited.split("\n", 1)[1])
    assert read_recipe(copy).train.seed == 1


def test_a_damaged_resume_file_still_allows_a_new_run_from_the_weights(copy, tmp_path):
    (copy / "resume.pt").write_bytes(b"")
    with pytest.raises(psco.PscoError, match="or start a new run with --init"):
        psco.pretrain(OLD_IMAGES, out=copy, resume=True, progress=False)
    again = psco.pretrain(
        OLD_IMAGES, out=tmp_path / "new", recipe=RECIPE, init=copy, progress=False
    )
    assert again.finished


@pytest.mark.parametrize("harm", ["missing", "damaged", "of an earlier step"])
def test_resuming_rewrites_a_model_that_is_missing_damaged_or_of_an_earlier_step(run, copy, harm):
    model = copy / "model.safetensors"
    if harm == "missing":
        model.unlink()
    elif harm == "damaged":
        model.write_bytes(flipped(model.read_bytes(), 12345))
    else:
        restore_model(copy, psco.Encoder.untrained(RECIPE, seed=3).method, RECIPE, 2)
    psco.pretrain(OLD_IMAGES, out=copy, resume=True, progress=False)
    assert equal(load_file(model), load_file(run / "model.safetensors"))


# ------------------------------------------------------------------------------------ metrics


def test_an_incomplete_last_row_is_skipped(run, copy):
    content, rows = (run / "metrics.csv").read_bytes(), read_metrics(run / "metrics.csv")
    starts = [place + 1 for place, byte in enumerate(content) if byte == ord("\n")]
    for place in range(starts[-3], len(content)):
        (copy / "metrics.csv").write_bytes(content[:place])
        whole = sum(place >= end - 1 for end in starts[1:])  # the line's end itself may be missing
        assert read_metrics(copy / "metrics.csv") == rows[:whole], place


def test_a_resumed_log_drops_the_rows_after_the_checkpoint(run, copy):
    rows = read_metrics(run / "metrics.csv")
    log = csv_logger(copy / "metrics.csv", done=4)
    assert read_metrics(copy / "metrics.csv") == rows[:4]
    log(rows[4])
    assert read_metrics(copy / "metrics.csv") == rows[:5]


# ------------------------------------------------------------------------------------ formats


def test_a_run_folder_of_format_1_is_read_and_resumed(tmp_path):
    folder = Path(shutil.copytree(OLD, tmp_path / "old"))
    assert read_recipe(folder) == RECIPE
    assert read_environment(folder)["command"] == ["psco", "pretrain"]
    assert read_calibration(folder) is not None
    assert load_resume(folder)["step"] == 4
    assert psco.load(folder).embed(OLD_IMAGES).query.shape == (20, 4)
    run = psco.pretrain(OLD_IMAGES, out=folder, resume=True, progress=False)
    assert run.steps == 6
    assert [row["step"] for row in run.metrics] == [1, 2, 3, 4, 5, 6]
    assert all(verify_checksum(folder / name, "") for name in ("resume.pt", "model.safetensors"))


@pytest.mark.parametrize("name", ["resume.pt", "model.safetensors"])
def test_a_truncated_file_of_format_1_is_reported(tmp_path, name):
    folder = Path(shutil.copytree(OLD, tmp_path / "old"))
    content = (folder / name).read_bytes()
    for place in (0, 100, len(content) // 2, len(content) - 1):
        (folder / name).write_bytes(content[:place])
        with pytest.raises(psco.PscoError, match="damaged or cut short"):
            READERS[name](folder)


def test_an_unknown_format_is_an_error_with_a_remedy(copy):
    message = (
        r"has format 3, and this version of psco reads 1 and 2; install the version that wrote it"
    )
    config = (copy / "config.yaml").read_text().split("\n", 1)[1]
    (copy / "config.yaml").write_text(f"# psco run, format 3, sha256: {PLACEHOLDER}\n{config}")
    write_checksum(copy / "config.yaml")
    write_json(copy / "env.json", {"format": 3})
    for name in ("config.yaml", "env.json"):
        with pytest.raises(psco.PscoError, match=f"{name} {message}"):
            READERS[name](copy)


# ---------------------------------------------------------------------------------- checksums


def test_files_with_a_checksum_are_still_valid_files_of_their_format(run):
    assert zipfile.ZipFile(run / "resume.pt").testzip() is None
    state = torch.load(run / "resume.pt", weights_only=True)
    assert state["step"] == 6
    assert load_file(run / "model.safetensors").keys() < state["method"].keys()
    assert psco.load_recipe(run / "config.yaml") == RECIPE


def test_a_checksum_is_the_hash_of_the_file_with_zeros_in_its_place(run, tmp_path):
    content = (run / "config.yaml").read_text()
    digits = content.split("sha256: ")[1][:64]
    (tmp_path / "zeroed").write_text(content.replace(digits, PLACEHOLDER))
    assert hash_file(tmp_path / "zeroed") == digits


TRAIN = """
import sys, numpy as np, psco
images = np.random.default_rng(0).integers(0, 256, (20, 16, 16, 1), dtype=np.uint8)
psco.pretrain(images, out=sys.argv[1], recipe=sys.argv[2], progress=False)
"""


def test_equal_runs_of_different_processes_write_the_same_bytes(tmp_path):
    """The hash of ``model.safetensors`` alone shows that two runs are the same."""
    hashes = set()
    for seed in "123":  # the order of sets and of safetensors' metadata differs between processes
        out = tmp_path / seed
        command = [sys.executable, "-c", TRAIN, str(out), str(OLD / "config.yaml")]
        subprocess.run(command, check=True, env={**os.environ, "PYTHONHASHSEED": seed})
        hashes.add(hash_file(out / "model.safetensors"))
    assert len(hashes) == 1
    header = (out / "model.safetensors").read_bytes()[8:400]
    names = ("format", "recipe", "sha256", "step")
    assert [header.index(f'"{name}"'.encode()) for name in names] == sorted(
        header.index(f'"{name}"'.encode()) for name in names
    )
