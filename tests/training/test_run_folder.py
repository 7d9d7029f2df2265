"""One process at a time works in a run folder, and a folder that cannot be used gets one line."""

from __future__ import annotations

import os
import re
import shutil
import signal
import socket
import sys
import time
from functools import partial
from pathlib import Path

import pytest
from child import PICTURES, begin, kill, receive, said, train

from psco.classifier.pretraining import pretrain
from psco.errors import InputError, PscoError
from psco.training.checkpoint import LOCK
from psco.training.logging import read_metrics


@pytest.fixture
def small(tiny) -> list[str]:
    return [*tiny, "train.steps=6", "train.log_steps=1"]


def names(folder) -> set[str]:
    return {path.name for path in folder.iterdir()}


@pytest.fixture
def busy(tmp_path, small):
    """Yield a process that trains in ``tmp_path / 'run'`` until it is killed."""
    process = begin(tmp_path / "run", [*small, "train.steps=1000000"])
    until = time.monotonic() + 60
    while not read_metrics(tmp_path / "run" / "metrics.csv"):
        assert process.is_alive(), said(tmp_path / "run")
        assert time.monotonic() < until
        time.sleep(0.02)
    yield process
    kill(process)


def test_a_second_process_is_refused_and_changes_nothing(tmp_path, small, busy):
    before = names(tmp_path / "run")
    who = f"process {busy.pid} on {re.escape(socket.gethostname())}"
    for resume in (True, False):
        with pytest.raises(PscoError, match=f"run' is in use by {who}; wait until it has finished"):
            pretrain(PICTURES, out=tmp_path / "run", recipe="glyphs", resume=resume)
    assert names(tmp_path / "run") == before
    kill(busy)
    assert (tmp_path / "run" / LOCK).exists()
    train(tmp_path / "run", [*small, "train.steps=1000000"], stop=lambda: True)
    assert LOCK not in names(tmp_path / "run")


def test_the_lock_is_free_after_an_error_and_after_the_end(tmp_path, small):
    with pytest.raises(InputError, match="unknown setting"):
        train(tmp_path / "deep" / "run", ["train.stepz=3"])
    assert list(tmp_path.iterdir()) == []
    run = train(tmp_path / "run", small)
    assert LOCK not in names(run.folder)


def test_a_folder_that_is_removed_while_training_ends_the_run_at_the_next_save(tmp_path, small):
    out = tmp_path / "run"
    at = {4: partial(shutil.rmtree, out)}
    process = begin(out, small, at=at, checkpoint_steps=2)
    process.join(60)
    assert process.exitcode == 1
    assert said(out).splitlines() == [
        f"error: the checkpoint of step 4 cannot be written to {out}: the folder was removed or "
        f"renamed; move it back and continue with --resume"
    ]
    assert not out.exists()


@pytest.mark.parametrize("place", ["file/run", "file", "/proc/none/run"])
def test_a_folder_that_cannot_be_made_is_reported_before_anything_else(tmp_path, small, place):
    (tmp_path / "file").write_text("text")
    with pytest.raises(InputError, match=r"cannot write to the run folder '.*': .*another --out$"):
        pretrain("no such data", out=tmp_path / place, recipe="glyphs", overrides=small)
    assert (tmp_path / "file").read_text() == "text"


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_read_only_folder_is_reported_before_anything_else(tmp_path, small):
    (tmp_path / "run").mkdir(mode=0o500)
    with pytest.raises(InputError, match=r"cannot write to the run folder .*: Permission denied"):
        train(tmp_path / "run", small)


def test_a_stopped_process_leaves_no_lock(tmp_path, small):
    process = begin(tmp_path / "run", small, at={3: partial(receive, signal.SIGTERM)})
    process.join(60)
    assert process.exitcode == 0, said(tmp_path / "run")
    assert LOCK not in names(tmp_path / "run")


@pytest.mark.skipif(sys.platform != "linux", reason="counts open files in /proc")
def test_runs_leave_no_open_files(tmp_path, small):
    train(tmp_path / "first", small)
    before = len(list(Path("/proc/self/fd").iterdir()))
    for number in range(3):
        train(tmp_path / str(number), [*small, "train.steps=1"])
    assert len(list(Path("/proc/self/fd").iterdir())) <= before
