"""Several ranks train like one process: real processes that communicate with gloo on the CPU."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
import torch
from child import free_port, torchrun_variables
from PIL import Image
from ranks_worker import RUNS, SMALL, blobs, train_all
from safetensors.torch import load_file
from typer.testing import CliRunner

import psco as library
from psco.cli import app
from psco.errors import InputError
from psco.ops.ranks import (
    all_max,
    all_sum,
    any_rank,
    averaged,
    broadcast,
    gather,
    own_rows,
    synchronise,
)
from psco.training.checkpoint import MODEL, load_resume
from psco.training.distributed import Place, find_place
from psco.training.feed import Feed
from psco.training.logging import read_metrics
from psco.training.trainer import Trainer
from psco.views import VIEW_PARTS, View, step_generator

WORKER = Path(__file__).parents[1] / "ranks_worker.py"
SECONDS = 600  # on a busy machine processes take their time to start
PROGRAM = [sys.executable, "-m", "psco"]


def slurm_variables(rank: int, ranks: int, port: str) -> dict[str, str]:
    own = {"SLURM_PROCID": rank, "SLURM_LOCALID": rank, "SLURM_NODEID": 0}
    job = {"SLURM_NTASKS": ranks, "SLURM_NTASKS_PER_NODE": ranks, "SLURM_NNODES": 1}
    job |= {"SLURM_JOB_ID": 4321, "SLURM_JOB_NAME": "train", "SLURM_NODELIST": "localhost"}
    meeting = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
    return {name: str(value) for name, value in {**own, **job, **meeting}.items()}


def run_ranks(command: list[object], ranks: int, variables=torchrun_variables) -> list[str]:
    """Start a command once per rank, wait for all, and return their outputs."""
    port = free_port()
    started = []
    for rank in range(ranks):
        environment = {**os.environ, **variables(rank, ranks, port)}
        process = subprocess.Popen(
            list(map(str, command)),
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        started.append(process)
    said = [process.communicate(timeout=SECONDS)[0] for process in started]
    assert [process.returncode for process in started] == [0] * ranks, said
    return said


@pytest.mark.parametrize(("ranks", "names"), [(2, list(RUNS)), (4, ["psco", "single"])])
def test_ranks_that_share_a_batch_train_as_one_process_does(ranks, names, tmp_path):
    (tmp_path / "one").mkdir()
    (tmp_path / "many").mkdir()
    alone = train_all(tmp_path / "one", names)
    run_ranks([sys.executable, WORKER, tmp_path / "many", *names], ranks)
    for name in names:
        rows = read_metrics(tmp_path / "many" / name / "metrics.csv")
        assert len(rows) == alone[name].steps
        for mine, theirs in zip(alone[name].metrics, rows, strict=True):
            for column in mine.keys() - {"seconds", "images_per_s"}:
                assert theirs[column] == pytest.approx(mine[column], rel=1e-4), (name, column)
        one, many = (load_file(tmp_path / side / name / MODEL) for side in ("one", "many"))
        torch.testing.assert_close(many, one, rtol=1e-4, atol=1e-4)
        expected = torch.load(tmp_path / "one" / f"{name}-0.pt", weights_only=True)
        states = [
            torch.load(tmp_path / "many" / f"{name}-{rank}.pt", weights_only=True)
            for rank in range(ranks)
        ]
        tolerance = 1e-4 if name == "single" else 1e-7
        for key, value in expected.items():
            for state in states:  # the queue, the moving averages and all weights
                assert torch.equal(state[key], states[0][key]), (name, key)
            torch.testing.assert_close(
                states[0][key], value, rtol=tolerance, atol=tolerance, msg=f"{name} {key}"
            )


@pytest.fixture
def folder(tmp_path) -> Path:
    """A folder of pictures, as the command line takes them."""
    pictures = tmp_path / "pictures"
    pictures.mkdir()
    for number, pixels in enumerate(blobs().images[:60, :, :, 0]):
        Image.fromarray(pixels).save(pictures / f"{number:02}.png")
    return pictures


STEPS = 150
LONGER = [
    *SMALL,
    "method={name: psco, shots: 2, queue_size: 50}",
    f"train={{steps: {STEPS}, batch_size: 16, learning_rate: 0.05, log_steps: 10}}",
]


def command(folder: Path, out: Path, *words: object) -> list[str]:
    settings = [part for setting in LONGER for part in ("--set", setting)]
    start = [*PROGRAM, "pretrain", folder, "--out", out, "--recipe", "glyphs", *settings]
    return list(map(str, [*start, "--rank-timeout", SECONDS, *words]))


def children(process: subprocess.Popen) -> list[int]:
    return [
        int(child)
        for tasks in Path(f"/proc/{process.pid}/task").glob("*/children")
        for child in tasks.read_text().split()
    ]


@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="needs the /proc of Linux")
def test_a_killed_rank_is_named_and_any_launcher_can_resume_the_run(folder, tmp_path):
    # Two ranks that psco starts itself; one is killed as soon as there is a checkpoint.
    run = tmp_path / "killed"
    going = subprocess.Popen(
        command(folder, run, "--devices", 2, "--strategy", "ddp", "--checkpoint-steps", 20),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    until = time.monotonic() + SECONDS
    while not (run / "model.safetensors").exists() and time.monotonic() < until:
        assert going.poll() is None, going.communicate()
        time.sleep(0.02)
    (other,) = children(going)
    os.kill(other, signal.SIGKILL)
    out, err = going.communicate(timeout=60)
    assert going.returncode == 1
    assert out == ""
    line = "error: rank 0 has lost another rank: rank 1 was killed by SIGKILL; --resume continues"
    assert line in err
    assert "Traceback" not in err
    with contextlib.suppress(ProcessLookupError):  # nothing is left behind
        os.kill(other, 0)
        pytest.fail("rank 1 is still there")

    # The rest of it: with Slurm's variables on two ranks, and by one process alone.
    saved = load_resume(run)["step"]
    assert 20 <= saved < STEPS
    shutil.copytree(run, tmp_path / "alone")
    said = run_ranks(command(folder, run, "--resume"), 2, slurm_variables)
    assert f"{STEPS} steps" in said[0]
    assert said[1] == ""
    options = {"recipe": "glyphs", "overrides": LONGER, "resume": True, "progress": False}
    assert library.pretrain(folder, out=tmp_path / "alone", **options).finished

    # The undisturbed run, by torchrun.
    launcher = [sys.executable, "-m", "torch.distributed.run", "--standalone"]
    torchrun = [*launcher, "--nproc-per-node", "2", "-m", *command(folder, tmp_path / "whole")[2:]]
    subprocess.run(torchrun, check=True, timeout=SECONDS, capture_output=True)
    whole, resumed, alone = (load_resume(tmp_path / name) for name in ("whole", "killed", "alone"))
    assert whole["step"] == resumed["step"] == alone["step"] == STEPS
    for key, value in whole["method"].items():
        assert torch.equal(value, resumed["method"][key]), key
        assert value.shape == alone["method"][key].shape
    steps = [row["step"] for row in read_metrics(run / "metrics.csv")]
    assert steps == list(range(10, STEPS + 1, 10))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"devices": 3}, r"a batch of 16 images cannot be split evenly over 3 ranks"),
        ({"devices": 0}, r"devices must be at least 1, got 0"),
        ({"devices": 2, "strategy": "fsdp"}, r"strategy must be auto or ddp, got 'fsdp'"),
        (
            {"devices": 2, "method": "maml"},
            r"method 'maml' trains on one device only, not on 2 ranks",
        ),
    ],
)
def test_what_cannot_run_on_several_devices_is_an_error_before_any_rank_starts(
    options, message, tmp_path
):
    settings = [*SMALL, "train={steps: 3, batch_size: 16}"]
    with pytest.raises(InputError, match=message):
        library.pretrain(
            blobs(), out=tmp_path / "run", recipe="glyphs", overrides=settings, **options
        )
    assert not (tmp_path / "run").exists()


def test_the_flag_for_the_auxiliary_loss_wins_over_the_settings():
    words = ["pretrain", "x", "--recipe", "imagenet", "--set", "method={name: psco, shots: 3}"]
    shown = CliRunner().invoke(app, [*words, "--aux", "byol", "--print-config"])
    assert "auxiliary: byol" in shown.output
    wrong = CliRunner().invoke(app, [*words, "--aux", "bol", "--print-config"])
    assert wrong.exit_code == 2
    assert "auxiliary: input should be 'moco', 'byol' or 'none', got 'bol'" in wrong.output


def test_the_processes_are_those_that_torchrun_or_slurm_has_started():
    assert find_place(None, None, {}) == Place(1, 1, "psco")
    assert find_place(8, 2, {}).ranks == 16
    torchrun = torchrun_variables(0, 4, "1") | {"LOCAL_WORLD_SIZE": "2"}
    assert find_place(None, None, torchrun) == Place(2, 2, "torchrun")
    slurm = slurm_variables(0, 16, "1") | {"SLURM_NTASKS_PER_NODE": "8", "SLURM_NNODES": "2"}
    assert find_place(None, 2, slurm) == Place(8, 2, "Slurm")
    # A shell on a node of the cluster, from which psco is started by hand.
    assert find_place(2, None, slurm | {"SLURM_JOB_NAME": "bash"}) == Place(2, 1, "psco")
    with pytest.raises(InputError, match=r"--devices is 4, but Slurm has started 8"):
        find_place(4, None, slurm)
    del slurm["SLURM_NTASKS_PER_NODE"]
    with pytest.raises(InputError, match="use --ntasks-per-node instead of --ntasks"):
        find_place(None, None, slurm)


@pytest.mark.parametrize("name", list(VIEW_PARTS))
def test_part_of_a_batch_has_the_same_views_as_in_the_whole_batch(name):
    options = {"erase": {"fill": "noise"}, "flip": {"vertical": 0.5}}.get(name, {})
    view = View([VIEW_PARTS[name](**options)], 16, [0.5] * 3, [0.25] * 3)
    pixels = np.random.default_rng(0).integers(0, 256, (12, 3, 20, 20), dtype=np.uint8)
    images = torch.from_numpy(pixels)
    whole = view(images, step_generator(3, 7))
    for first in (0, 4, 8):
        generator = step_generator(3, 7, (first, 12))
        share = view(images[first : first + 4], generator)
        torch.testing.assert_close(share, whole[first : first + 4], rtol=0, atol=1e-5)
    # What comes next in the step is the same for all.
    after = step_generator(3, 7)
    view(images, after)
    assert torch.equal(torch.rand(3, generator=after), torch.rand(3, generator=generator))


def test_the_feeds_of_all_ranks_together_yield_the_batch():
    feed = Feed(blobs(), 12, 0)
    whole, labels = feed[5]
    assert feed.rows is None
    parts = []
    for rank in range(3):
        feed.split(rank, 3)
        assert feed.rows == (4 * rank, 12)
        parts.append(feed[5])
    assert torch.equal(torch.cat([images for images, _ in parts]), whole)
    assert torch.equal(torch.cat([own for _, own in parts]), labels)


def test_a_single_process_is_all_ranks():
    x = torch.rand(4, 2)
    assert gather(x) is x
    assert all_sum(x) is x
    assert all_max(x) is x
    assert torch.equal(x[own_rows(4)], x)
    assert any_rank(True)
    assert not any_rank(False)
    assert broadcast(3.5) == 3.5
    assert averaged({"loss": 2.0}) == {"loss": 2.0}


def test_variants_of_batchnorm_are_refused_rather_than_synchronised_wrongly():
    class NormAct(torch.nn.BatchNorm2d):
        pass

    with pytest.raises(InputError, match=r"layer '1' is a NormAct, which cannot be synchronised"):
        synchronise(torch.nn.Sequential(torch.nn.ReLU(), NormAct(3)))


def test_the_requested_precision_is_used_on_one_device(tmp_path, tiny, pictures):
    losses = {}
    for precision in ("32-true", "64-true", "bf16-mixed"):
        changes = [*tiny, "train.steps=2", f"train.precision={precision}"]
        trainer = Trainer(pictures, tmp_path / precision, "glyphs", changes, progress=False)
        run = trainer.run()
        losses[precision] = run.metrics[-1]["total"]
    assert losses["64-true"] == pytest.approx(losses["32-true"], rel=1e-5)
    assert losses["bf16-mixed"] == pytest.approx(losses["32-true"], rel=0.05)
    assert losses["bf16-mixed"] != pytest.approx(losses["32-true"], rel=1e-5)
