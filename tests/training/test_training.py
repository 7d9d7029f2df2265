"""Training: the loop, exact resume, and every way it can be stopped."""

from __future__ import annotations

import json
import math
import os
import signal
import subprocess
import sys
import time

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

import psco
from psco.ops.native import absence
from psco.recipes.recipe import load_recipe
from psco.training.checkpoint import load_resume
from psco.training.environment import environment, keep_freed_memory
from psco.training.logging import read_metrics
from psco.training.optim import Schedule, build_optimizer


def weights(folder) -> dict[str, torch.Tensor]:
    state = load_resume(folder)
    assert state is not None
    return {**state["method"], **load_file(folder / "model.safetensors")}


def same(one: dict[str, torch.Tensor], other: dict[str, torch.Tensor]) -> bool:
    return one.keys() == other.keys() and all(torch.equal(one[n], other[n]) for n in one)


def train(pictures, out, tiny, **options):
    options = {"recipe": "glyphs", "overrides": tiny, "progress": False, **options}
    return psco.pretrain(pictures, out=out, **options)


def test_a_run_folder_contains_the_documented_files(pictures, tmp_path, tiny):
    run = train(pictures, tmp_path / "run", tiny)
    assert run.finished
    assert run.steps == 12
    names = {path.name for path in (tmp_path / "run").iterdir()}
    assert names == {
        "config.yaml",
        "model.safetensors",
        "resume.pt",
        "metrics.csv",
        "env.json",
        "quality.json",
        "calibration.json",
    }
    assert json.loads((tmp_path / "run" / "env.json").read_text())["torch"] == torch.__version__
    rows = run.metrics
    assert [row["step"] for row in rows] == [2, 4, 6, 8, 10, 12]
    assert {"total", "psco", "moco", "overlap", "learning_rate", "images_per_s"} <= set(rows[0])
    assert "purity" not in rows[0]
    assert not any(
        n.startswith(("momentum_", "queue"))
        for n in load_file(tmp_path / "run" / "model.safetensors")
    )


def test_equal_seeds_give_equal_weights_and_different_seeds_different_ones(
    pictures, tmp_path, tiny
):
    for name, seed in {"a": 0, "b": 0, "c": 1}.items():
        train(pictures, tmp_path / name, tiny, seed=seed)
    assert same(weights(tmp_path / "a"), weights(tmp_path / "b"))
    assert not same(weights(tmp_path / "a"), weights(tmp_path / "c"))


def test_labels_change_nothing_except_the_logged_purity(pictures, tmp_path, tiny):
    labelled = psco.ImageSet(pictures, np.arange(60) // 6, tuple("abcdefghij"))
    train(pictures, tmp_path / "blind", tiny)
    run = train(labelled, tmp_path / "seeing", [*tiny, "train.purity=true"])
    seeing, blind = weights(tmp_path / "seeing"), weights(tmp_path / "blind")
    assert seeing.pop("queue.labels").max() >= 0
    assert blind.pop("queue.labels").max() == -1
    assert same(seeing, blind)
    assert all(0 <= row["purity"] <= 1 for row in run.metrics)
    with pytest.raises(psco.InputError, match=r"train.purity needs labels"):
        train(pictures, tmp_path / "none", [*tiny, "train.purity=true"])


def test_accumulated_gradients_and_sampled_shots_train_and_repeat_exactly(pictures, tmp_path, tiny):
    changes = [*tiny, "train.accumulate=3", "train.batch_size=8", "method.sample_shots=true"]
    one = train(pictures, tmp_path / "a", changes)
    train(pictures, tmp_path / "b", changes)
    assert one.steps == 12
    assert int(weights(tmp_path / "a")["queue.position"]) == 12 * 24 % 50
    assert same(weights(tmp_path / "a"), weights(tmp_path / "b"))


def test_a_run_by_epochs_ends_after_the_right_number_of_steps(pictures, tmp_path, tiny):
    run = train(pictures, tmp_path / "run", [*tiny, "train.epochs=2.5"])
    assert run.steps == round(2.5 * (60 // 16))


def test_a_run_by_minutes_ends_in_time_with_a_low_learning_rate(pictures, tmp_path, tiny):
    run = train(pictures, tmp_path / "run", [*tiny, "train.minutes=0.03"])
    assert run.finished
    assert run.metrics[-1]["seconds"] < 0.03 * 60 + 2
    assert run.metrics[-1]["learning_rate"] < 0.3 * run.metrics[0]["learning_rate"]


def test_bfloat16_training_stays_finite(pictures, tmp_path, tiny):
    run = train(pictures, tmp_path / "run", [*tiny, "train.precision=bf16-mixed"])
    assert math.isfinite(run.metrics[-1]["total"])


def test_views_given_as_functions_replace_those_of_the_recipe(pictures, tmp_path, tiny):
    calls = []

    def view(images: torch.Tensor) -> torch.Tensor:
        calls.append(images.shape)
        return images[:, :, 2:18, 2:18].float() / 255 + 0.1 * torch.randn(len(images), 1, 16, 16)

    for name in ("a", "b"):
        train(pictures, tmp_path / name, tiny, views=(view, view), steps=3)
    assert calls == [(16, 1, 20, 20)] * 12
    assert same(weights(tmp_path / "a"), weights(tmp_path / "b"))


def test_loggers_receive_every_row_and_tensorboard_writes_events(pictures, tmp_path, tiny):
    pytest.importorskip("tensorboard")
    rows = []
    run = train(pictures, tmp_path / "run", tiny, loggers=[rows.append], tensorboard=True)
    assert [row["step"] for row in rows] == [row["step"] for row in run.metrics]
    assert list((tmp_path / "run" / "tensorboard").glob("events*"))


# ------------------------------------------------------------------------------- stop and resume


def test_a_run_interrupted_by_an_exception_resumes_bit_identically(pictures, tmp_path, tiny):
    train(pictures, tmp_path / "whole", tiny)

    def fail(row) -> None:
        if row["step"] == 8:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        train(pictures, tmp_path / "parts", tiny, loggers=[fail], checkpoint_steps=3)
    assert load_resume(tmp_path / "parts")["step"] == 6
    run = train(pictures, tmp_path / "parts", tiny, resume=True)
    assert run.steps == 12
    assert same(weights(tmp_path / "whole"), weights(tmp_path / "parts"))
    steps = [row["step"] for row in run.metrics]
    assert steps == sorted(set(steps))
    assert steps[-1] == 12


SCRIPT = """
import sys, numpy as np, psco
pictures = np.load(sys.argv[1])
psco.pretrain(pictures, out=sys.argv[2], recipe="glyphs", overrides=sys.argv[3:], resume=True,
              checkpoint_steps=5, progress=False)
"""


def start(pictures, out, overrides) -> subprocess.Popen:
    file = out.parent / "pictures.npy"
    np.save(file, pictures)
    command = [sys.executable, "-c", SCRIPT, str(file), str(out), *overrides]
    return subprocess.Popen(command, stderr=subprocess.PIPE, text=True)


def wait_for_step(out, step, process) -> None:
    until = time.monotonic() + 120
    while time.monotonic() < until and process.poll() is None:
        rows = read_metrics(out / "metrics.csv")
        if rows and rows[-1]["step"] >= step:
            return
        time.sleep(0.02)
    raise AssertionError(f"step {step} never came: {process.stderr.read()}")


def test_ctrl_c_saves_and_the_run_can_be_resumed(pictures, tmp_path, tiny):
    out = tmp_path / "run"
    process = start(pictures, out, [*tiny, "train.steps=100000", "train.log_steps=1"])
    wait_for_step(out, 3, process)
    process.send_signal(signal.SIGINT)
    _, said = process.communicate(timeout=60)
    assert process.returncode == 0
    assert "stopping after this step" in said
    saved = load_resume(out)["step"]
    assert saved == read_metrics(out / "metrics.csv")[-1]["step"]


def test_a_resumed_finished_run_does_nothing(pictures, tmp_path, tiny):
    train(pictures, tmp_path / "run", tiny)
    before = (tmp_path / "run" / "resume.pt").read_bytes()
    run = train(pictures, tmp_path / "run", tiny, resume=True)
    assert run.steps == 12
    assert (tmp_path / "run" / "resume.pt").read_bytes() == before


def test_resume_needs_no_settings_and_refuses_different_ones(pictures, tmp_path, tiny):
    train(pictures, tmp_path / "run", tiny)
    assert psco.pretrain(pictures, out=tmp_path / "run", resume=True, progress=False).steps == 12
    with pytest.raises(psco.InputError, match=r"train.seed is 0 in the run and 5 here"):
        train(pictures, tmp_path / "run", tiny, resume=True, seed=5)


def test_resume_refuses_different_images(pictures, tmp_path, tiny):
    train(pictures, tmp_path / "run", tiny)
    with pytest.raises(psco.InputError, match="are not those of the run"):
        train(255 - pictures, tmp_path / "run", tiny, resume=True)


def test_resume_without_a_run_starts_one(pictures, tmp_path, tiny):
    assert train(pictures, tmp_path / "run", tiny, resume=True).steps == 12


# ----------------------------------------------------------------------------------- bad input


def test_an_existing_run_folder_is_not_touched(pictures, tmp_path, tiny):
    train(pictures, tmp_path / "run", tiny)
    before = {p.name: p.read_bytes() for p in (tmp_path / "run").iterdir()}
    with pytest.raises(psco.InputError, match="exists already; --resume continues"):
        train(pictures, tmp_path / "run", tiny)
    assert {p.name: p.read_bytes() for p in (tmp_path / "run").iterdir()} == before


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ("train.batch_size=61", "batch_size 61 is larger than the data set of 60 images"),
        ("method.shots=51", "shots must be between 1 and queue_size = 50, got 51"),
        ("backbone.name=conv5", "needs image_size >= 32, got 16"),
        ("train.precision=float8", "float8"),
        ("train.average_last=1.5", "train.average_last: .*less than or equal to 1, got 1.5"),
        (
            "views.view_b={crop: {scale: [0.001, 0.002]}}",
            r"every view of 20 x 20 px .* raise scale",
        ),
        (
            "views.view_a={affine: {fill: [1, 2, 3]}}",
            "fill must have 1 level for images with 1 channel",
        ),
        ("image.channels=3", r"image: mean needs one number per channel \(3\), got \[0.5\]"),
    ],
)
def test_bad_settings_write_nothing(pictures, tmp_path, tiny, change, message):
    with pytest.raises(psco.InputError, match=message):
        train(pictures, tmp_path / "run", [*tiny, change])
    assert not (tmp_path / "run").exists()


def test_views_of_one_colour_are_refused_before_anything_is_written(tmp_path, tiny):
    drawings = np.full((40, 20, 20, 1), 255, dtype=np.uint8)
    drawings[:, 5:15, 9:11] = 0
    thin = "views.view_a={stroke: {amount: [-3, -2]}}"
    with pytest.raises(psco.InputError, match=r"view_a: 100% of .* because of stroke.amount="):
        train(drawings, tmp_path / "run", [*tiny, thin])
    assert not (tmp_path / "run").exists()


def test_images_are_converted_to_the_channels_of_the_recipe(pictures, tmp_path, tiny):
    colour = ["image.channels=3", "image.mean=[0.5, 0.5, 0.5]", "image.std=[0.2, 0.2, 0.2]"]
    run = train(pictures, tmp_path / "run", [*tiny, *colour], steps=2)
    assert psco.load(run.folder).method.backbone[0].weight.shape[1] == 3


def test_a_checkpoint_of_another_architecture_is_reported(pictures, tmp_path, tiny):
    train(pictures, tmp_path / "run", tiny)
    config = tmp_path / "run" / "config.yaml"
    edited = config.read_text().replace("width: 8", "width: 16")
    config.write_text(edited.split("\n", 1)[1])  # without the line that has the hash
    for action in (
        lambda: psco.load(tmp_path / "run"),
        lambda: psco.pretrain(pictures, out=tmp_path / "run", resume=True, progress=False),
    ):
        with pytest.raises(psco.InputError, match=r"another architecture: 'backbone.0.weight' is"):
            action()


@pytest.mark.parametrize("name", ["resume.pt", "model.safetensors"])
def test_a_damaged_checkpoint_is_reported(pictures, tmp_path, tiny, name):
    train(pictures, tmp_path / "run", tiny)
    file = tmp_path / "run" / name
    file.write_bytes(file.read_bytes()[:1000])
    reads = {
        "resume.pt": lambda: train(pictures, tmp_path / "run", tiny, resume=True),
        "model.safetensors": lambda: psco.load(tmp_path / "run"),
    }
    with pytest.raises(psco.PscoError, match="damaged or cut short"):
        reads[name]()


def test_a_loss_that_is_not_finite_stops_with_step_rate_and_checkpoint(pictures, tmp_path, tiny):
    def poison(images: torch.Tensor) -> torch.Tensor:
        view = images[:, :, :16, :16].float() / 255
        if poison.calls >= 14:  # two views a step: step 7
            view = view * math.nan
        poison.calls += 1
        return view

    poison.calls = 0
    with pytest.raises(psco.PscoError) as caught:
        train(pictures, tmp_path / "run", tiny, views=(poison, poison), checkpoint_steps=3)
    message = str(caught.value)
    assert "not finite at step 7 with learning rate 0.00" in message
    assert f"{tmp_path / 'run' / 'resume.pt'}, step 6" in message
    assert load_resume(tmp_path / "run")["step"] == 6
    assert all(value.isfinite().all() for value in weights(tmp_path / "run").values())


# ------------------------------------------------------------------------------------- schedule


def test_the_learning_rate_warms_up_then_follows_a_cosine_to_zero():
    schedule = Schedule(peak=2.0, warmup_steps=4, steps=100)
    rates = [schedule.learning_rate(t, schedule.done(t, 0)) for t in range(100)]
    assert rates[:4] == [0.5, 1.0, 1.5, 2.0]
    for t in range(4, 100):
        assert rates[t] == pytest.approx(1 + math.cos(math.pi * t / 100))


def test_the_learning_rate_is_scaled_to_the_images_of_a_step():
    from psco.training.optim import schedule_for

    recipe = psco.load_recipe("omniglot", ["train.batch_size=128", "train.accumulate=4"])
    assert schedule_for(recipe.train, 10).peak == pytest.approx(0.03 * 512 / 256)
    assert schedule_for(recipe.train, 10).steps == 400 * 10 // 4


@pytest.mark.skipif(os.name != "posix", reason="glibc only")
def test_the_optimiser_takes_the_steps_of_plain_sgd():
    train = load_recipe("omniglot").train
    ours, theirs = (torch.nn.Linear(5, 3) for _ in range(2))
    theirs.load_state_dict(ours.state_dict())
    optimisers = [
        build_optimizer(ours, train, 0.1),
        torch.optim.SGD(theirs.parameters(), 0.1, train.sgd_momentum, 0.0, train.weight_decay),
    ]
    for step in range(4):
        x = torch.randn(8, 5, generator=torch.Generator().manual_seed(step))
        for network, optimiser in zip((ours, theirs), optimisers, strict=True):
            network(x).square().sum().backward()
            optimiser.step()
            optimiser.zero_grad()
    torch.testing.assert_close(ours.weight, theirs.weight)


@pytest.mark.usefixtures("without_kernels")
def test_the_environment_says_why_there_are_no_kernels():
    assert environment()["kernels"] == {"used": False, "reason": absence()}


@pytest.mark.skipif(absence() is not None, reason="no kernels here")
def test_the_environment_names_the_kernels():
    kernels = environment()["kernels"]
    assert kernels["used"]
    assert {"assignment", "contrast", "heads"} <= set(kernels["names"])


def test_the_allocator_can_be_left_unchanged(monkeypatch):
    monkeypatch.setenv("PSCO_MALLOC", "default")
    assert keep_freed_memory() is False


def test_a_warm_up_by_fraction_fits_any_length_of_the_run():
    for steps in (20, 2000):
        schedule = Schedule(peak=2.0, warmup=0.1, steps=steps)
        rates = [schedule.learning_rate(step, step / steps) for step in range(steps)]
        assert rates[0] == pytest.approx(0.02)
        assert rates[steps // 20] == pytest.approx(1.0)
        assert rates[steps // 10] == pytest.approx(1 + math.cos(math.pi * 0.1))
    timed = Schedule(peak=2.0, warmup=0.1, seconds=600)
    assert timed.learning_rate(3, timed.done(3, 30)) == pytest.approx(1.0)


def test_two_kinds_of_warm_up_are_refused():
    with pytest.raises(psco.InputError, match="set one of warmup and warmup_steps"):
        psco.load_recipe("omniglot", ["train.warmup=0.1", "train.warmup_steps=5"])
