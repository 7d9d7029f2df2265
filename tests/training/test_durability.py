"""Kills, signals and full disks: no run is lost."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from child import (
    PICTURES,
    begin,
    begin_ranks,
    command,
    copy_at_every_call,
    die_beyond,
    kill,
    limit_files,
    receive,
    said,
    train,
)
from PIL import Image
from safetensors.torch import load_file

import psco
from psco.training.checkpoint import load_resume, read_environment
from psco.training.logging import read_metrics

FILES = {"config.yaml", "model.safetensors", "resume.pt", "metrics.csv", "env.json"}


@pytest.fixture(scope="module")
def small(tiny) -> list[str]:
    return [*tiny, "train.steps=6", "train.log_steps=1"]


@pytest.fixture(scope="module")
def whole(small, tmp_path_factory) -> Path:
    """A run that was not interrupted."""
    out = tmp_path_factory.mktemp("undisturbed") / "run"
    train(out, small)
    return out


def state(folder: Path) -> dict[str, Any]:
    """Return everything the next step depends on."""
    found = load_resume(folder)
    assert found is not None
    return {name: found[name] for name in ("step", "method", "optimizer")}


def equal(one: Any, other: Any) -> bool:
    if isinstance(one, torch.Tensor):
        return torch.equal(one, other)
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(equal(one[n], other[n]) for n in one)
    if isinstance(one, list):
        return len(one) == len(other) and all(map(equal, one, other))
    return bool(one == other)


def names(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()}


# ----------------------------------------------------------------------------------------- kills


def wait_for_checkpoints(out: Path, number: int, process) -> float:
    """Wait for ``number`` more checkpoints; return the seconds the last one took."""
    file, begun = out / "resume.pt", time.monotonic()
    took, before = 0.3, file.stat().st_mtime_ns if file.exists() else 0
    while number and process.is_alive():
        time.sleep(0.001)
        if file.exists() and file.stat().st_mtime_ns != before:
            before, number = file.stat().st_mtime_ns, number - 1
            took, begun = time.monotonic() - begun, time.monotonic()
    return took


@pytest.mark.parametrize("ranks", [1, 2])
def test_a_run_killed_at_20_random_moments_ends_with_the_same_bits(ranks, tmp_path, tiny):
    # Long enough that a run which a busy machine kills late has steps left for all 20 kills.
    longer = [*tiny, "train.steps=400", "train.log_steps=1"]
    whole, killed = tmp_path / "whole", tmp_path / "killed"
    finish(begin_ranks(whole, longer, ranks))
    random = np.random.default_rng()
    for _ in range(20):
        processes = begin_ranks(killed, longer, ranks, checkpoint_steps=1)
        moment = random.uniform(0, 3)  # in steps; before the first one it is still setting up
        took = wait_for_checkpoints(killed, int(moment), processes[0])
        time.sleep(moment % 1 * took)
        for process in processes:
            kill(process)
        assert processes[0].exitcode == -signal.SIGKILL
    finish(begin_ranks(killed, longer, ranks))
    assert state(killed)["step"] == 400
    assert equal(state(killed), state(whole))
    assert names(killed) == names(whole)
    assert [row["step"] for row in read_metrics(killed / "metrics.csv")] == list(range(1, 401))


def test_temporary_files_of_killed_writers_are_removed(tmp_path, small):
    run = train(tmp_path / "run", [*small, "train.steps=2"])
    for name in (".model.safetensors.4711.part", ".tmp6vifL7"):  # ours, and that of safetensors
        (run.folder / name).write_bytes(b"half")
    train(tmp_path / "run", [*small, "train.steps=2"])
    assert names(run.folder) >= FILES
    assert not [name for name in names(run.folder) if name.startswith(".")]


def finish(processes) -> None:
    for process in processes:
        process.join(120)
    assert [process.exitcode for process in processes] == [0] * len(processes)


@pytest.mark.parametrize("fraction", [0.1, 0.5, 0.99])
def test_a_kill_in_the_middle_of_a_checkpoint_leaves_the_previous_one(
    fraction, tmp_path, small, whole
):
    killed = tmp_path / "killed"
    size = int(fraction * (whole / "resume.pt").stat().st_size)
    process = begin(killed, small, at={5: partial(die_beyond, size)}, checkpoint_steps=2)
    process.join()
    assert process.exitcode == -signal.SIGXFSZ, said(killed)
    assert len(list(killed.glob(".resume.*.part.pt"))) == 1
    assert state(killed)["step"] == 4
    train(killed, small)
    assert equal(state(killed), state(whole))
    assert names(killed) == names(whole)


def test_a_kill_between_any_two_file_operations_only_costs_steps(tmp_path, tiny):
    short = [*tiny, "train.steps=2", "train.log_steps=1"]
    whole, copies = tmp_path / "whole", tmp_path / "copies"
    process = begin(whole, short, at={0: partial(copy_at_every_call, whole, copies)},
                    checkpoint_steps=1)  # fmt: skip
    process.join()
    assert process.exitcode == 0, said(whole)
    found = sorted(copies.iterdir(), key=lambda path: int(path.name))
    steps = []
    for folder in found:
        steps.append((load_resume(folder) or {"step": 0})["step"])
        train(folder, short)
        assert equal(state(folder), state(whole)), folder.name
        model = "model.safetensors"
        assert equal(load_file(folder / model), load_file(whole / model)), folder.name
        assert names(folder) == names(whole), folder.name
        assert read_environment(folder)
    assert set(steps) == {0, 1, 2}
    assert steps == sorted(steps)


# --------------------------------------------------------------------------------------- signals


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGUSR1], ids=lambda n: n.name)
def test_after_a_scheduler_signal_the_step_is_finished_and_saved(number, tmp_path, small, whole):
    stopped = tmp_path / "stopped"
    process = begin(stopped, small, at={3: partial(receive, number)})
    process.join()
    assert process.exitcode == 0
    assert said(stopped) == f"{number.name}: stopping after this step\n"
    assert state(stopped)["step"] == 3
    train(stopped, small)
    assert equal(state(stopped), state(whole))


def test_a_signal_handler_of_the_calling_program_stays(tmp_path, small):
    received = []
    before = signal.signal(signal.SIGTERM, lambda number, _: received.append(number))

    def send(row) -> None:
        if row["step"] == 2:
            receive(signal.SIGTERM)

    try:
        run = train(tmp_path / "run", small, loggers=[send])
    finally:
        signal.signal(signal.SIGTERM, before)
    assert run.finished
    assert received == [signal.SIGTERM]


@pytest.fixture
def folder(tmp_path) -> Path:
    path = tmp_path / "pictures"
    path.mkdir()
    for number, pixels in enumerate(PICTURES):
        Image.fromarray(pixels[:, :, 0]).save(path / f"{number}.png")
    return path


def wait_for_rows(out: Path, process) -> None:
    while not read_metrics(out / "metrics.csv"):
        assert process.is_alive(), said(out)
        time.sleep(0.01)


def settings(overrides: list[str]) -> list[str]:
    return [word for override in overrides for word in ("--set", override)]


def test_sigterm_to_a_whole_job_saves_and_exits_0_with_a_requeue_hint(folder, tmp_path, tiny):
    """Slurm sends it to all processes of a job, those that decode pictures included."""
    out = tmp_path / "run"
    endless = settings([*tiny, "train.steps=100000", "train.log_steps=1"])
    words = ["pretrain", folder, "--out", out, "--recipe", "own-images", "--workers", 2, *endless]
    process = command(out, *words, environment={"SLURM_JOB_ID": "4711"})
    wait_for_rows(out, process)
    os.killpg(process.pid, signal.SIGTERM)
    process.join(60)
    assert process.exitcode == 0
    step = state(out)["step"]
    assert step == read_metrics(out / "metrics.csv")[-1]["step"]
    *before, hint = said(out).splitlines()
    assert "SIGTERM: stopping after this step" in before
    assert hint == (
        f"SIGTERM: saved at step {step}; requeue with: scontrol requeue 4711, for a script that "
        f"runs: psco pretrain {folder} --out {out} --resume"
    )


@pytest.mark.skipif(not Path("/proc/self").exists(), reason="looks at processes in /proc")
@pytest.mark.parametrize("late", [True, False], ids=["before", "after"])
def test_a_worker_ends_when_its_parent_is_killed_before_or_after_the_worker_starts(tmp_path, late):
    script = f"""
import os, time
from functools import partial
from torch.utils.data import DataLoader
from psco.training.signals import follow_parent

def begin(*args):
    with open({str(tmp_path / "pid")!r}, "w") as file:
        file.write(str(os.getpid()))
    while {late} and os.getppid() == parent:
        time.sleep(0.01)
    follow_parent(*args)

parent = os.getpid()
loader = DataLoader(range(9), num_workers=1, worker_init_fn=partial(begin, parent))
batches = iter(loader)
time.sleep(60)
"""
    process = subprocess.Popen([sys.executable, "-c", script])
    file = tmp_path / "pid"
    wait_until(lambda: file.exists() and file.read_text())
    worker = int(file.read_text())
    process.kill()
    process.wait()
    wait_until(lambda: not is_running(worker))


def wait_until(condition) -> None:
    until = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < until
        time.sleep(0.05)


def is_running(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def test_sigterm_stops_compare_after_saving_the_current_run(folder, tmp_path, tiny):
    out = tmp_path / "rivals"
    less = [override for override in tiny if not override.startswith("method=")]
    words = ["compare", "--train", "--data", folder, "--out", out, "--recipe", "own-images",
             "--methods", "simclr,byol", "--steps", 100000,
             *settings([*less, "train.steps=100000", "train.log_steps=1"])]  # fmt: skip
    process = command(out, *words)
    wait_for_rows(out / "simclr", process)
    os.kill(process.pid, signal.SIGTERM)
    process.join(60)
    assert process.exitcode == 0
    assert "SIGTERM: saved at step" in said(out).splitlines()[-1]
    assert said(out).endswith("requeue: the same command\n")
    assert names(out) == {"simclr"}


# ------------------------------------------------------------------------------------- full disk


def test_a_full_disk_stops_the_run_with_one_line_and_keeps_the_last_checkpoint(
    tmp_path, small, whole
):
    out = tmp_path / "run"
    process = begin(out, small, at={5: partial(limit_files, 8000)}, checkpoint_steps=2)
    process.join()
    assert process.exitcode == 1
    assert said(out) == (
        f"error: the checkpoint of step 6 cannot be written to {out}: File too large; the last "
        f"checkpoint is intact; free some space and continue with --resume, or train on without "
        f"it: --on-full-disk continue\n"
    )
    assert names(out) == FILES
    assert state(out)["step"] == 4
    train(out, small)
    assert equal(state(out), state(whole))


def test_with_continue_training_goes_on_and_saves_once_there_is_space_again(tmp_path, small):
    out, whole = tmp_path / "run", tmp_path / "whole"
    longer = [*small, "train.steps=10"]
    at = {3: partial(limit_files, 500), 7: partial(limit_files, None)}
    process = begin(out, longer, at=at, checkpoint_steps=2, on_full_disk="continue")
    process.join()
    assert process.exitcode == 0, said(out)
    lines = said(out).splitlines()
    assert all("File too large; training continues and tries again" in line for line in lines)
    assert 1 <= len(lines) <= 2  # the curves and the checkpoints share one warning, or have two
    train(whole, longer)
    assert equal(state(out), state(whole))
    steps = [row["step"] for row in read_metrics(out / "metrics.csv")]
    assert steps == list(range(1, 11))  # rows that found no room were written later
    assert names(out) == names(whole)


def test_with_continue_the_last_checkpoint_must_still_be_written(tmp_path, small):
    out = tmp_path / "run"
    at = {5: partial(limit_files, 8000)}
    process = begin(out, small, at=at, checkpoint_steps=2, on_full_disk="continue")
    process.join()
    assert process.exitcode == 1
    warning, error = said(out).splitlines()
    assert warning.startswith("warning: the checkpoint of step 6 cannot be written")
    assert error.endswith("is intact; free some space and continue with --resume")
    assert state(out)["step"] == 4
    assert names(out) == FILES


def test_an_unknown_value_of_on_full_disk_is_an_error_and_writes_nothing(tmp_path, small):
    with pytest.raises(psco.InputError, match="must be 'stop' or 'continue', not 'ignore'"):
        train(tmp_path / "run", small, on_full_disk="ignore")
    assert not (tmp_path / "run").exists()


MOUNT = ["unshare", "--user", "--map-root-user", "--mount"]
can_mount = (
    shutil.which("unshare") is not None
    and subprocess.run(
        [*MOUNT, "mount", "-t", "tmpfs", "tmpfs", "/mnt"], capture_output=True
    ).returncode
    == 0
)


@pytest.mark.skipif(not can_mount, reason="needs a user namespace to mount a small disk in")
def test_a_full_file_system_is_reported_by_the_program(folder, tmp_path, small, whole):
    needed = sum((whole / name).stat().st_size for name in ("resume.pt", "model.safetensors"))
    disk, kept = tmp_path / "disk", tmp_path / "kept"
    disk.mkdir()
    script = 'mount -t tmpfs -o size="$1" tmpfs "$2"; shift 2; "$0" -m psco "$@"; code=$?; ' \
             f'cp -r {disk}/run {kept}; exit $code'  # fmt: skip
    done = subprocess.run(
        [*MOUNT, "sh", "-c", script, sys.executable, str(int(1.3 * needed) + 16384), str(disk),
         "pretrain", str(folder), "--out", f"{disk}/run", "--recipe", "own-images",
         "--checkpoint-steps", "2", *settings(small)],
        capture_output=True, text=True, timeout=300,
    )  # fmt: skip
    assert done.returncode == 1
    error = done.stderr.splitlines()[-1]
    assert error.startswith("error: the checkpoint of step 4 cannot be written to")
    assert "No space left on device; the last checkpoint is intact" in error
    assert names(kept) - {"quality.json"} == FILES
    assert state(kept)["step"] == 2
