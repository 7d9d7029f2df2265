"""Comparisons: the same tasks for all, paired marks, the paper's numbers, and what is written."""

from __future__ import annotations

import json
import re
from dataclasses import replace

import numpy as np
import pytest
from PIL import Image
from typer.testing import CliRunner

import psco
from psco.cli import app
from psco.evaluation.compare import Comparison, Row
from psco.evaluation.result import Report
from psco.report.compared import comparison_page, table, to_markdown

METHODS = ["psco", "moco", "protonets", "maml", "random"]
FAST = ["method.ways=6", "method.inner_steps=1", "method.test_steps=3"]


@pytest.fixture(scope="module")
def runs(few_glyphs, small, tmp_path_factory):
    """Train five methods for two steps each; give their folders."""
    folder = tmp_path_factory.mktemp("runs")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("psco.classifier.calibration._SUPPORTS", 60)
        for name in METHODS:
            psco.pretrain(
                few_glyphs,
                out=folder / name,
                recipe="glyphs",
                method=name,
                steps=2,
                overrides=[*small, *(FAST if name == "maml" else [])],
                progress=False,
            )
    return [folder / name for name in METHODS]


@pytest.fixture(scope="module")
def comparison(runs, few_glyphs) -> Comparison:
    settings = [(5, 1), (8, 2)]
    return psco.compare(runs, few_glyphs, settings, queries=3, tasks=12, slow_tasks=5)


def test_every_run_has_its_own_rule_and_those_that_embed_the_common_one(comparison):
    assert [(row.method, row.rule, row.own_rule) for row in comparison.rows] == [
        ("psco", "prototype", True),
        ("moco", "knn", True),
        ("protonets", "euclidean", True),
        ("maml", "maml", True),
        ("random", "class-mean", True),
        ("psco", "class-mean", False),
        ("moco", "class-mean", False),
        ("protonets", "class-mean", False),
    ]


def test_all_rows_are_measured_on_the_same_tasks(comparison, few_glyphs, runs):
    alone = psco.evaluate(runs[1], few_glyphs, queries=3, tasks=12, rule="knn")
    assert comparison.rows[1].results[5, 1].per_task == alone.per_task
    for row in comparison.rows:
        for result in row.results.values():
            assert (result.seed, result.queries) == (0, 3)
            assert result.tasks == (5 if row.rule == "maml" else 12)
    # The slow rule has the first of the tasks, not others.
    maml = psco.evaluate(runs[3], few_glyphs, queries=3, tasks=5, rule="maml", options={"steps": 3})
    assert comparison.rows[3].results[5, 1].per_task == maml.per_task


def test_a_setting_that_a_model_cannot_do_is_left_empty(comparison):
    assert set(comparison.rows[3].results) == {(5, 1)}  # MAML was trained for six ways
    head, rows = table(comparison)
    assert head[-2:] == ["5-way 1-shot", "8-way 2-shot"]
    assert rows[3][-1] == "–"
    assert comparison.difference(comparison.rows[3], (8, 2)) is None


def test_differences_are_paired_on_the_tasks_that_both_have_done(comparison):
    first = comparison.rows[0].results[5, 1].per_task
    for row in comparison.rows[1:]:
        gaps = np.array(row.results[5, 1].per_task) - first[: row.results[5, 1].tasks]
        found = comparison.difference(row, (5, 1))
        assert found.mean == pytest.approx(gaps.mean())
        assert found.ci95 == pytest.approx(1.96 * gaps.std(ddof=1) / np.sqrt(len(gaps)))
    assert comparison.difference(comparison.rows[0], (5, 1)) is None


# ---------------------------------------------------------------------------- marks and the paper


def made_up(gaps: list[float], **facts) -> Comparison:
    """Compare two invented rows whose accuracies differ by the given points, task by task."""
    base = np.linspace(40, 80, len(gaps))

    def report(values) -> Report:
        return Report(
            **{"data": "omniglot", "split": "test", "rule": "knn", "ways": 5, "shots": 1},
            **{"queries": 15, "tasks": len(gaps), "seed": 0, "ci95": 1.0},
            mean=float(np.mean(values)),
            per_task=tuple(values),
        )

    def row(name: str, values) -> Row:
        about = {"title": name, "kind": "self-supervised", "steps": 1, "rule": "knn"}
        about |= {"own_rule": True, "paper": {}, **facts}
        return Row(name=name, method=name, results={(5, 1): report(values)}, **about)

    rows = (row("psco", base), row("moco", base + np.array(gaps)))
    return Comparison("omniglot", "test", ((5, 1),), 15, 0, rows)


@pytest.mark.parametrize(
    ("gaps", "mark"),
    [
        ([2.0, 2.5, 1.5, 2.0], " ▲"),
        ([-2.0, -2.5, -1.5, -2.0], " ▼"),
        ([4.0, -4.0, 3.0, -2.0], ""),  # the mean is above zero, and says nothing
        ([0.0, 0.0, 0.0, 0.0], ""),
    ],
)
def test_only_differences_whose_interval_leaves_out_zero_are_marked(gaps, mark):
    compared = made_up(gaps)
    mean = compared.rows[1].results[5, 1].mean
    assert table(compared)[1][1][-1] == f"{mean:.2f} ± 1.00{mark}"
    results = compared.as_dict()["results"]
    assert results[0]["difference"] is None
    assert results[1]["difference"]["significant"] is bool(mark)


def test_the_papers_number_stands_in_brackets_and_says_when_it_is_of_another_kind():
    one = made_up([1.0, 2.0], paper={(5, 1): 92.66})
    assert table(one)[1][1][-1].endswith("[92.66]")
    maml = replace(one.rows[1], method="maml")
    other = replace(one, rows=(one.rows[0], maml))
    assert table(other)[1][1][-1].endswith("[92.66, transductive]")


# ---------------------------------------------------------------------------------------- outputs


def test_markdown_has_both_tables_and_names_the_reference(comparison):
    text = to_markdown(comparison)
    assert (
        text.count("| method | labels | steps | rule | tasks | 5-way 1-shot | 8-way 2-shot |") == 2
    )
    assert "Paired differences from PsCo under prototype" in text
    assert "| ProtoNets | yes | 2 | euclidean | 12 |" in text
    assert "| MoCo v2 | no | 2 | knn | 12 |" in text
    lines = [line for line in text.splitlines() if line.startswith("|")]
    assert {line.count("|") for line in lines} == {8}


def test_the_page_stands_alone_and_shows_every_row(comparison):
    html = comparison_page(comparison)
    assert html.startswith("<!doctype html>")
    assert html.count("<svg") == 2
    assert not re.search(r"(src|href)=.?http", html)
    for row in comparison.rows:
        assert row.title in html


def test_no_runs_and_tasks_that_cannot_be_are_errors(runs, few_glyphs):
    with pytest.raises(psco.InputError, match="needs at least one run folder"):
        psco.compare([], few_glyphs, [(5, 1)])
    with pytest.raises(psco.InputError, match="31 classes of at least 16 images; 30 of 30"):
        psco.compare(runs, few_glyphs, [(31, 1)])
    with pytest.raises(psco.InputError, match="5 classes of at least 21 images; 0 of 30"):
        psco.compare(runs, few_glyphs, [(5, 6)])
    with pytest.raises(psco.InputError, match="has no labels"):
        psco.compare(runs, few_glyphs.unlabelled(), [(5, 1)])


# ---------------------------------------------------------------------------------- command line


def test_compare_trains_goes_on_and_writes_tables(psco, small, tmp_path):
    words = ["compare", "--train", "--data", "glyphs", "--steps", 2, "--out", tmp_path / "runs"]
    words += ["--ways", 5, "--shots", 1, 5, "--tasks", 4, "--slow-tasks", 2, "--json"]
    words += [word for change in small for word in ("--set", change)]
    first = psco(*words, "--methods", "moco,simclr")
    assert first.returncode == 0, first.stderr
    kept = (tmp_path / "runs" / "moco" / "resume.pt").read_bytes()
    (tmp_path / "runs" / "simclr" / "resume.pt").unlink()  # as if it had been killed at the start

    files = ["--markdown", tmp_path / "table.md", "--html", tmp_path / "page.html"]
    done = psco(*words, "--methods", "moco,simclr,pixels", *files)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "runs" / "moco" / "resume.pt").read_bytes() == kept
    found = json.loads(done.stdout)
    assert (found["data"], found["split"]) == ("glyphs", "test")
    assert [r["method"] for r in found["results"]] == [
        *["moco", "moco", "simclr", "simclr", "pixels", "pixels"],
        *["moco", "moco", "simclr", "simclr"],
    ]
    before = json.loads(first.stdout)["results"]
    assert [r["mean"] for r in found["results"][:4]] == [r["mean"] for r in before[:4]]
    assert "| SimCLR | no | 2 | knn | 4 |" in (tmp_path / "table.md").read_text()
    assert "<svg" in (tmp_path / "page.html").read_text()


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("--data glyphs", "needs at least one run folder"),
        ("nowhere --data glyphs", "'nowhere' is not a run folder"),
        ("", "--data is missing"),
        ("--train --data glyphs --steps 2", "--out is missing"),
        (
            "--train --data glyphs --out x",
            "set one budget for all methods: --budget 10m or --steps 1500",
        ),
        ("--train --data glyphs --out x --budget 10", "such as 90s, 10m or 1h, not '10'"),
        ("old --train --data glyphs --out x --steps 2", "leave out 'old'"),
    ],
)
def test_bad_words_on_the_command_line_are_one_line(words, message, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    run = CliRunner().invoke(app, ["compare", *words.split()])
    assert run.exit_code == 2
    assert message in run.stderr
    assert run.stderr.count("\n") == 1
    assert not list(tmp_path.iterdir())


def test_a_note_is_printed_if_own_images_are_both_trained_and_tested_on(psco, small, tmp_path):
    random = np.random.default_rng(0)
    for place in ("old", "new"):
        for name in "ab":
            (tmp_path / place / name).mkdir(parents=True)
            for number in range(4):
                pixels = random.integers(0, 256, (20, 20), dtype=np.uint8)
                Image.fromarray(pixels).save(tmp_path / place / name / f"{number}.png")
    words = ["compare", "--train", "--methods", "moco", "--steps", 1, "--tasks", 2, "--ways", 2]
    words += ["--queries", 2, "--json", *(word for change in small for word in ("--set", change))]
    words += ["--set", "train.batch_size=4", "--data", tmp_path / "new"]

    same = psco(*words, "--out", tmp_path / "same")
    assert same.returncode == 0, same.stderr
    assert "has no splits, so every method is tested on its training images" in same.stderr

    other = psco(*words, "--out", tmp_path / "other", "--train-data", tmp_path / "old")
    assert other.returncode == 0, other.stderr
    assert "has no splits" not in other.stderr
    weights = [tmp_path / run / "moco" / "model.safetensors" for run in ("same", "other")]
    assert weights[0].read_bytes() != weights[1].read_bytes()
