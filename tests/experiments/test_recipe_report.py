"""The report about a recipe: several seeds, the same tasks, one file."""

from __future__ import annotations

import itertools
import json
import statistics

import pytest

import psco
from psco.experiments.recipe_report import report_recipe, thinned

SMALL = ["backbone={name: conv4, width: 8}", "heads={hidden: 32, out: 16}", "method.queue_size=64"]
SMALL += ["train={steps: 3, batch_size: 16, learning_rate: 0.1, log_steps: 1}"]


def test_the_command_trains_every_seed_tests_all_on_the_same_tasks_and_writes_one_file(
    psco, tmp_path
):
    words = ["report", "glyphs", "-o", tmp_path, "--seeds", 3, 5, "--set", *SMALL, "--tasks", 6]
    done = psco(*words, "--rules", "prototype,ridge", "--json")
    assert done.returncode == 0, done.stderr
    report = json.loads((tmp_path / "report.json").read_text())
    assert report == json.loads(done.stdout)
    demo = {"results", "curves", "seconds", "recipe", "environment"}
    assert report.keys() == demo | {"mean", "runs"}
    assert [
        (r["training_seed"], r["rule"], r["ways"], r["shots"], r["tasks"], r["seed"])
        for r in report["results"]
    ] == [
        (seed, rule, ways, shots, 6, 0)
        for seed in (3, 5)
        for rule in ("prototype", "ridge")
        for ways in (5, 20)
        for shots in (1, 5)
    ]
    for row in report["mean"]:
        key = (row["rule"], row["ways"], row["shots"])
        seeds = [r["mean"] for r in report["results"] if (r["rule"], r["ways"], r["shots"]) == key]
        assert row["mean"] == pytest.approx(statistics.mean(seeds))
        assert row["ci95"] > 0
    assert [run["steps"] for run in report["runs"]] == [3, 3]
    assert all(run["minutes"] >= 0 for run in report["runs"])
    assert [(r["training_seed"], r["step"]) for r in report["curves"]] == [
        (seed, step) for seed in (3, 5) for step in (1, 2, 3)
    ]
    assert report["environment"]["command"][:3] == ["psco", "report", "glyphs"]
    assert report["recipe"]["heads"]["hidden"] == 32

    before = (tmp_path / "seed-3" / "resume.pt").read_bytes()
    again = report_recipe(  # trains nothing, tests again
        "glyphs", out=tmp_path, seeds=[3], overrides=SMALL, tasks=6, progress=False
    )
    assert again["results"] == report["results"][:4]
    assert (tmp_path / "seed-3" / "resume.pt").read_bytes() == before


def test_by_default_three_seeds_are_trained_in_a_folder_named_after_the_recipe(psco, tmp_path):
    words = ["report", "glyphs", "--set", *SMALL, "--ways", 5, "--shots", 1, "--tasks", 2, "--json"]
    done = psco(*words, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert [run["training_seed"] for run in json.loads(done.stdout)["runs"]] == [0, 1, 2]
    assert (tmp_path / "runs" / "glyphs" / "report.json").is_file()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"seeds": []}, r"seeds must be different numbers, at least one, got \[\]"),
        ({"seeds": [1, 1]}, r"got \[1, 1\]"),
        ({"rules": ["rigde"]}, "did you mean 'ridge'"),
        ({"split": "tset"}, "tset"),
        ({"ways": [2000]}, "2000"),
        ({"overrides": ["train.stepz=3"]}, "did you mean 'steps'"),
    ],
)
def test_bad_input_trains_nothing(tmp_path, options, message):
    with pytest.raises(psco.InputError, match=message):
        report_recipe("glyphs", out=tmp_path / "runs", progress=False, **options)
    assert not (tmp_path / "runs").exists()


@pytest.mark.parametrize("number", [1, 99, 100, 101, 350])
def test_curves_are_thinned_evenly_and_keep_their_last_row(number):
    rows = [{"step": float(step)} for step in range(1, number + 1)]
    kept = [row["step"] for row in thinned(rows, 100)]
    assert kept[-1] == number
    assert len(kept) <= 100
    assert len({b - a for a, b in itertools.pairwise(kept)}) <= 1
