"""Every script of `benchmarks/` runs from the root of the repository."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from argparse import Namespace
from pathlib import Path

import pytest

import psco
from benchmarks.accuracy.open_set import SETTINGS
from benchmarks.compare_checkouts import conclude

ROOT = Path(__file__).parents[2]
README = ROOT / "benchmarks" / "README.md"


def run(module: str, *words: object) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", module, *map(str, words)]
    return subprocess.run(command, capture_output=True, text=True, timeout=300, cwd=ROOT)


@pytest.mark.parametrize(
    ("module", "words", "expected"),
    [
        ("benchmarks.data", [], "20 JPEGs of 500 px, open"),
        ("benchmarks.exported", [], "| conv4 | 1 |"),
        ("benchmarks.features", [], "of the limit"),
        ("benchmarks.labelling", [], "ms of processor time"),
        ("benchmarks.methods", ["--methods", "psco", "maml"], "| maml |"),
        ("benchmarks.rules", [], "times as fast (95 % interval"),
        ("benchmarks.views", ["--recipes", "own-drawings"], "own-drawings"),
        ("benchmarks.serving", [], "answers {'200': 20}"),
        ("benchmarks.speed.naive_trainer", ["--steps", 1], "images/s"),
    ],
)
def test_a_script_runs_at_toy_sizes(module, words, expected):
    done = run(module, "--quick", *words)
    assert done.returncode == 0, done.stderr
    assert expected in done.stdout


def test_calibration_and_rejection_of_a_run_are_written_as_json(tmp_path):
    small = ["backbone.width=8", "heads={hidden: 32, out: 16}", "train.batch_size=32"]
    run_folder, file = tmp_path / "run", tmp_path / "quality.json"
    images = psco.load_dataset("glyphs", "train", size=28, channels=1)
    psco.pretrain(images, out=run_folder, recipe="glyphs", steps=2, overrides=small, progress=False)
    words = [run_folder, "--data", "glyphs", "--split", "val", "--out", file]
    done = run("benchmarks.accuracy.open_set", "--quick", *words)
    assert done.returncode == 0, done.stderr
    found = json.loads(file.read_text())
    assert found["command"].startswith("python -m benchmarks.accuracy.open_set --quick ")
    assert [(row["ways"], row["shots"]) for row in found["results"]] == SETTINGS
    assert found["steps"] == 2


def test_every_script_is_described_in_the_readme():
    modules = {
        path.relative_to(ROOT).with_suffix("").as_posix().replace("/", ".")
        for path in (ROOT / "benchmarks").rglob("*.py")
        if "argparse.ArgumentParser(" in path.read_text()
    }
    text = README.read_text()
    for module in modules:
        assert f"`{module.removesuffix('.__main__')}`" in text, module


# ------------------------------------------------------------------------------- two source trees


def test_a_source_tree_compared_with_itself_gives_a_ratio_with_its_interval(tmp_path):
    file = tmp_path / "times.json"
    done = run("benchmarks.compare_checkouts", ROOT, ROOT, "--quick", "--json", file)
    assert done.returncode == 0, done.stderr
    assert "new / old: " in done.stdout
    found = json.loads(file.read_text())
    low, high = found["ratio"]["interval"]
    assert low <= found["ratio"]["value"] <= high
    (times,) = found["rounds"]
    assert {name: len(seconds) for name, seconds in times.items()} == {"old": 6, "new": 6}
    assert min(times["old"] + times["new"]) > 0


@pytest.mark.parametrize(("slowest", "code"), [(1.02, 0), (1.05, 1)])
def test_the_exit_code_says_whether_the_whole_interval_lies_within_the_bound(slowest, code, capsys):
    options = Namespace(within=0.03, json=None)
    times = {"old": [0.1] * 6, "new": [0.1 * ratio for ratio in (1, 1, 1, 1, 1, slowest)]}
    assert conclude(options, [times]) == code
    printed = capsys.readouterr().out
    assert f"new / old: 1.000, 95 % interval 1.000 to {slowest:.3f} over 6 turns" in printed
    assert printed.endswith(f"within 3.0%: {'not shown' if code else 'yes'}\n")


def test_a_folder_without_the_package_is_an_error(tmp_path):
    done = run("benchmarks.compare_checkouts", ROOT, tmp_path)
    assert done.returncode == 2
    assert done.stderr.startswith(f"error: {tmp_path} holds no psco/__init__.py")


def test_every_file_that_the_page_on_speed_names_exists():
    text = (ROOT / "docs" / "speed.md").read_text()
    names = re.findall(r"`((?:psco|benchmarks|tests|results)/[\w./-]+)`", text)
    assert len(names) > 20
    assert [name for name in names if not (ROOT / name).exists()] == []
