"""The program as users run it: in its own process."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
import yaml
from PIL import Image
from typer.testing import CliRunner

import psco as package
from psco.classifier.calibration import read_calibration
from psco.cli import app
from psco.cli.common import repeat_flags
from psco.recipes.recipe import recipe_names


@pytest.fixture
def folder(tmp_path):
    """Make a folder with four classes of ten small pictures each."""
    random = np.random.default_rng(0)
    for name in "abcd":
        (tmp_path / "images" / name).mkdir(parents=True)
        for number in range(10):
            pixels = random.integers(0, 256, (24, 30, 3), dtype=np.uint8)
            Image.fromarray(pixels).save(tmp_path / "images" / name / f"{number}.png")
    return tmp_path / "images"


@pytest.fixture
def small(tiny):
    return [
        "--recipe",
        "own-images",
        "--set",
        *tiny[:-1],
        "--set",
        "train={steps: 6, batch_size: 16, log_steps: 2}",
    ]


COMMANDS = (
    *("demo", "pretrain", "views", "recipes", "methods", "fit", "classify", "embed"),
    *("models", "evaluate", "compare", "report", "reproduce", "doctor", "data"),
)


def test_help_lists_every_command_and_imports_no_torch(psco):
    text = psco("--help").stdout
    for command in COMMANDS:
        assert f" {command} " in text
    code = (
        "import sys\nfrom typer.testing import CliRunner\nfrom psco.cli import app\n"
        "assert CliRunner().invoke(app, ['--help']).exit_code == 0\n"
        "sys.exit('torch' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_has_help(command):
    done = CliRunner().invoke(app, [command, "--help"])
    assert done.exit_code == 0
    assert "Options" in done.stdout


def test_version_prints_the_version(psco):
    assert psco("--version").stdout.strip() == package.__version__


def test_recipes_lists_every_recipe_with_one_sentence():
    done = CliRunner().invoke(app, ["recipes", "--json"])
    rows = {row["name"]: row["summary"] for row in json.loads(done.stdout)}
    assert list(rows) == recipe_names()
    assert rows["omniglot"].startswith("Omniglot as in the paper")
    for summary in rows.values():
        assert 20 < len(summary) < 250
        assert "#" not in summary
    table = CliRunner().invoke(app, ["recipes"]).stdout
    assert all(name in table for name in rows)


def test_a_report_goes_to_a_folder_named_after_the_recipe(psco, tiny, tmp_path):
    changes = [word for change in tiny[:-1] for word in ("--set", change)]
    length = ["--set", "train={steps: 2, batch_size: 16, log_steps: 1}"]
    words = ["--recipe", "glyphs", "--seeds", 0, "--tasks", 3, "--ways", 5, "--shots", 1]
    done = psco("report", "glyphs", *words, *changes, *length, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "5-way 1-shot" in " ".join(done.stdout.split())
    folder = tmp_path / "runs" / "glyphs"
    assert f"report: {Path('runs') / 'glyphs' / 'report.json'}" in done.stderr
    assert {path.name for path in folder.iterdir()} == {"report.json", "seed-0"}


def test_a_folder_becomes_a_run_and_the_run_is_evaluated(psco, folder, small, tmp_path):
    done = psco("pretrain", folder, "--out", tmp_path / "run", *small, "--json")
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout)
    assert (result["steps"], result["finished"]) == (6, True)
    done = psco(
        "evaluate",
        tmp_path / "run",
        "--data",
        folder,
        "--ways",
        2,
        4,
        "--shots",
        1,
        3,
        "--queries",
        5,
        "--tasks",
        20,
        "--json",
    )
    assert done.returncode == 0, done.stderr
    results = json.loads(done.stdout)["results"]
    assert [(r["ways"], r["shots"]) for r in results] == [(2, 1), (2, 3), (4, 1), (4, 3)]
    assert all(0 <= r["mean"] <= 100 for r in results)
    assert all(len(r["hash"]) == 12 for r in results)
    page = tmp_path / "page.html"
    words = ["--queries", 5, "--tasks", 20, "--ways", 4, "--html", page]
    table = psco("evaluate", tmp_path / "run", "--data", folder, *words)
    assert "4-way 1-shot" in " ".join(table.stdout.split())
    assert "(inductive)" in " ".join(table.stdout.split())
    mean = next(r["mean"] for r in results if (r["ways"], r["shots"]) == (4, 1))
    assert f"{mean:.2f} ±" in table.stdout
    assert f"mean {mean:.2f} %" in table.stderr
    assert page.read_text(encoding="utf-8").count('<table class="task">') == 1


def test_pretraining_calibrates_one_shot_classifiers_of_its_run(psco, folder, small, tmp_path):
    run, file = tmp_path / "run", tmp_path / "abcd.psco"
    assert psco("pretrain", folder, "--out", run, *small).returncode == 0
    known = read_calibration(run)
    rows = [f"images/{name}/0.png,{name}" for name in "abcd"]
    (tmp_path / "one.csv").write_text("\n".join(["path,label", *rows]))
    done = psco("fit", run, tmp_path / "one.csv", "-o", file, "--reject", "auto", "--json")
    assert done.returncode == 0, done.stderr
    facts = json.loads(done.stdout)
    assert facts["supports"] == dict.fromkeys("abcd", 1)
    assert facts["temperature"] == pytest.approx(known.temperature_for(4))
    assert facts["threshold"] == pytest.approx(known.similarity_for(4)[1])
    done = psco("classify", file, folder, "--csv", tmp_path / "out.csv")
    assert done.returncode == 0, done.stderr
    assert len((tmp_path / "out.csv").read_text().splitlines()) == 41


def test_tasks_can_be_saved_and_replayed(psco, folder, small, tmp_path):
    psco("pretrain", folder, "--out", tmp_path / "run", *small)
    words = ["evaluate", tmp_path / "run", "--data", folder, "--ways", 3, "--queries", 5]
    kept = tmp_path / "kept"
    first = psco(*words, "--tasks", 30, "--seed", 8, "--save-tasks", kept, "--json")
    again = psco(*words, "--replay", kept, "--json")
    assert first.returncode == 0, first.stderr
    assert json.loads(again.stdout) == json.loads(first.stdout)
    assert [file.name for file in kept.iterdir()] == ["3-way-1-shot.npz"]
    missing = psco(*words, "--shots", 2, "--replay", kept)
    assert missing.returncode == 2
    assert "no task file" in missing.stderr


def test_print_config_prints_the_resolved_recipe_and_runs_nothing(psco, tmp_path):
    done = psco(
        "pretrain",
        "glyphs",
        "--print-config",
        "--steps",
        5,
        "--set",
        "method.shots=3",
        "train.seed=9",
        cwd=tmp_path,
    )
    tree = yaml.safe_load(done.stdout)
    assert (tree["train"]["steps"], tree["method"]["shots"], tree["train"]["seed"]) == (5, 3, 9)
    assert tree["method"]["sinkhorn_epsilon"] == 0.05
    assert list(tmp_path.iterdir()) == []


def test_ctrl_c_saves_says_how_to_resume_and_exits_1(folder, small, tmp_path):
    out = tmp_path / "run"
    command = [
        sys.executable,
        "-m",
        "psco",
        "pretrain",
        str(folder),
        "--out",
        str(out),
        *small,
        "--steps",
        "100000",
        "--seed",
        "3",
    ]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    until = time.monotonic() + 120
    while not (out / "metrics.csv").exists() or not (out / "metrics.csv").stat().st_size:
        assert process.poll() is None, process.stderr.read()
        assert time.monotonic() < until
        time.sleep(0.05)
    process.send_signal(signal.SIGINT)
    _, said = process.communicate(timeout=60)
    assert process.returncode == 1
    assert f"psco pretrain {folder} --out {out} --resume" in said
    assert (out / "model.safetensors").exists()


def bad_folder(tmp_path, kind):
    path = tmp_path / kind
    path.mkdir()
    if kind == "broken":
        (path / "bad.png").write_bytes(b"no picture")
    return path


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["{empty}"], 2, "no images in"),
        (["{broken}"], 2, "bad.png"),
        (["{missing}/none"], 2, "there is no folder"),
        (["glyfs"], 2, "did you mean 'glyphs'"),
        (["glyphs", "--recipe", "omniglt"], 2, "did you mean 'omniglot'"),
        (["glyphs", "--set", "method.shot=3"], 2, "did you mean 'shots'"),
        (["glyphs", "--set", "method.shots=5000"], 2, "queue_size = 4096, got 5000"),
        (["glyphs", "--set", "train.batch_size=30000"], 2, "larger than the data set of 20000"),
        (["glyphs", "--method", "simclrr"], 2, "unknown method 'simclrr'"),
        (["glyphs", "--steps", "0"], 2, "train.steps"),
        (["glyphs", "--checkpoint-steps", "0"], 2, "checkpoint_steps must be > 0"),
    ],
)
def test_bad_input_gets_one_line_and_an_exit_code(psco, tmp_path, arguments, code, message):
    places = {kind: bad_folder(tmp_path, kind) for kind in ("empty", "broken", "missing")}
    words = [word.format(**places) for word in arguments]
    done = psco("pretrain", *words, "--out", tmp_path / "run")
    assert done.returncode == code, done.stderr
    errors = [line for line in done.stderr.splitlines() if line.startswith("error:")]
    assert len(errors) == 1
    assert message in errors[0]
    assert "Traceback" not in done.stderr
    assert done.stdout == ""
    assert not (tmp_path / "run").exists()


def test_debug_shows_the_traceback(psco, tmp_path):
    done = psco("pretrain", "glyfs", "--out", tmp_path / "run", "--debug")
    assert "Traceback" in done.stderr
    assert done.returncode != 0


def test_an_existing_folder_and_a_folder_that_is_no_run_are_refused(psco, folder, tmp_path):
    done = psco("pretrain", folder, "--out", folder)
    assert done.returncode == 2
    assert "exists already; --resume continues" in done.stderr
    done = psco("evaluate", folder, "--data", "glyphs")
    assert done.returncode == 2
    assert "is not a run folder" in done.stderr


def test_a_missing_out_and_an_unknown_option_are_usage_errors(psco):
    assert psco("pretrain", "glyphs").returncode == 2
    assert psco("pretrain", "glyphs", "--bogus").returncode == 2


def test_doctor_finds_the_broken_torchvision_and_stays_healthy(psco):
    done = psco("doctor", "--json")
    assert done.returncode == 0, done.stderr
    findings = {finding["subject"]: finding for finding in json.loads(done.stdout)}
    assert findings["torch"]["verdict"] == "ok"
    assert findings["torchvision"]["verdict"] in ("warning", "absent")
    assert "cache" in findings
    assert "torchvision" in psco("doctor").stdout


def test_lists_of_values_may_follow_one_flag():
    assert repeat_flags(["--ways", "5", "20", "--shots", "1", "--json"]) == [
        "--ways",
        "5",
        "--ways",
        "20",
        "--shots",
        "1",
        "--json",
    ]
    assert repeat_flags(["--set", "a=1", "b=2", "glyphs"]) == [
        "--set",
        "a=1",
        "--set",
        "b=2",
        "glyphs",
    ]


def test_the_demo_writes_its_report(psco, tmp_path):
    out = tmp_path / "demo"
    done = psco("demo", "--out", out, "--steps", 4, "--tasks", 20, "--json")
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    assert report == json.loads((out / "report.json").read_text())
    settings = [(5, 1), (5, 5), (20, 1), (20, 5)]
    for method in ("psco", "pixels", "random"):
        rows = [r for r in report["results"] if r["method"] == method]
        assert [(r["ways"], r["shots"]) for r in rows] == settings
        assert all({"mean", "ci95", "tasks"} <= r.keys() for r in rows)
    trust = {(q["ways"], q["shots"]): q for q in report["open_set"]}
    assert set(trust) == {(5, 1), (20, 1), (5, 5)}
    assert all(0 <= q["calibration_error"] <= 1 for q in trust.values())
    assert trust[5, 1]["auroc"] > 0.5
    pixels = next(r for r in report["results"] if r["method"] == "pixels" and r["ways"] == 20)
    assert 20 <= pixels["mean"] <= 45
    html = (out / "report.html").read_text()
    assert html.count("<svg") == 3  # accuracies, training curves, reliability
    assert f"{trust[5, 1]['calibration_error']:.3f}" in html
    assert f"{trust[5, 1]['auroc']:.3f}" in html
    assert "data:image/png;base64" in html
    assert 'class="right"' in html
    assert 'class="wrong"' in html
    assert 'src="http' not in html
    assert 'href="http' not in html.replace('xmlns:xlink="http', "")
    again = psco("demo", "--out", out, "--steps", 4, "--tasks", 20)
    assert json.loads((out / "report.json").read_text())["results"] == report["results"]
    assert f"AUROC of rejection {trust[5, 1]['auroc']:.3f}" in again.stdout
