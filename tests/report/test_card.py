"""psco card: README.md of a run folder, in the hub's format."""

from __future__ import annotations

import json

import pytest
import torch
import yaml
from typer.testing import CliRunner

from psco.cli import app
from psco.evaluation.embed import load
from psco.files.checksums import hash_file
from psco.recipes.build import build_method
from psco.recipes.recipe import load_recipe
from psco.training.checkpoint import save_checkpoint, start_folder

ROW = {
    "method": "psco",
    "data": "omniglot",
    "split": "test",
    "rule": "prototype",
    "ways": 5,
    "shots": 1,
    "queries": 15,
    "tasks": 2000,
    "seed": 0,
    "mean": 98.8163,
    "ci95": 0.1071,
}


@pytest.fixture
def folder(tmp_path, tiny):
    """A run folder with random weights."""
    recipe = load_recipe("glyphs", [*tiny, "views.at_test=2"])
    torch.manual_seed(0)
    command = ["psco", "pretrain", "omniglot", "--out", "/home/somebody/secret/run 1"]
    facts = {"psco": "0.1.0", "torch": "2.13.0", "python": "3.11.7", "command": command}
    start_folder(
        tmp_path / "run 1", recipe, {**facts, "data": {"name": "omniglot", "images": 82240}}
    )
    save_checkpoint(tmp_path / "run 1", build_method(recipe), recipe, 1200, {})
    return tmp_path / "run 1"


def run(*words):
    return CliRunner().invoke(app, ["card", *map(str, words)])


def read(path):
    """Return the front matter of a card, and its text."""
    _, front, text = path.read_text().split("---\n", 2)
    return yaml.safe_load(front), text


def test_a_card_states_how_the_run_was_made(folder):
    done = run(folder, "--licence", "mit")
    assert (done.exit_code, done.stderr) == (0, "")
    front, text = read(folder / "README.md")
    assert front["library_name"] == "psco"
    assert front["license"] == "mit"
    assert "few-shot-learning" in front["tags"]
    assert front["datasets"] == ["omniglot"]
    assert "metrics" not in front
    assert hash_file(folder / "model.safetensors") in text
    for fact in ("conv4, 16 px, grey", "82,240 images", "brendenlake", "| seed | 0 |", "| 1,200 |"):
        assert fact in text
    assert "`psco pretrain omniglot --out 'run 1'`" in text
    assert "somebody" not in text
    assert "Not measured." in text
    assert load(folder).steps == 1200  # the folder is a run as before


def test_results_of_an_evaluation_are_listed_with_their_intervals(folder, tmp_path):
    rows = [ROW, {**ROW, "ways": 20, "mean": 96.12}]
    (tmp_path / "results.json").write_text(json.dumps({"run": "x", "results": rows}))
    done = run(folder, "--evaluation", tmp_path / "results.json", "--name", "drawings")
    assert done.exit_code == 0
    assert "the licence is unknown" in done.stderr
    front, text = read(folder / "README.md")
    (model,) = front["model-index"]
    assert model["name"] == "drawings"
    assert [result["metrics"][0]["value"] for result in model["results"]] == [98.82, 96.12]
    assert "98.82 ± 0.11" in text
    assert "20-way 1-shot" in text


@pytest.mark.parametrize(
    "content",
    [
        "[]",
        "{}",
        "x",
        "[" * 100_000,
        json.dumps({"results": []}),
        json.dumps({"results": [{**ROW, "mean": 1e9}]}),
        json.dumps({"results": [{**ROW, "ways": "5"}]}),
        json.dumps({"results": [{**ROW, "data": 5}]}),
        json.dumps({"results": [{"mean": 5}]}),
    ],
)
def test_a_file_without_results_is_one_line_and_writes_nothing(folder, tmp_path, content):
    (tmp_path / "results.json").write_text(content)
    done = run(folder, "--evaluation", tmp_path / "results.json")
    assert done.exit_code == 2
    assert "is not the output of psco evaluate RUN --json" in done.stderr
    assert not (folder / "README.md").exists()


def test_a_card_that_is_there_is_kept_unless_told_otherwise(folder):
    (folder / "README.md").write_text("mine")
    done = run(folder)
    assert (done.exit_code, (folder / "README.md").read_text()) == (2, "mine")
    assert "--force replaces it" in done.stderr
    assert run(folder, "--force").exit_code == 0
    assert "library_name: psco" in (folder / "README.md").read_text()


def test_names_cannot_break_out_of_the_table_or_the_front_matter(folder, tmp_path):
    rows = [{**ROW, "data": "a | b\n---\nlicense: gpl"}]
    (tmp_path / "results.json").write_text(json.dumps({"results": rows}))
    run(
        folder,
        "--evaluation",
        tmp_path / "results.json",
        "--name",
        "x: [y\n---",
        "--licence",
        "mit",
    )
    front, text = read(folder / "README.md")
    assert front["license"] == "mit"
    assert front["model-index"][0]["name"] == "x: [y\\n---"
    assert "\n---\nlicense" not in text
    assert "a \\| b" in text


def test_a_folder_that_is_no_run_is_an_error(tmp_path):
    done = run(tmp_path)
    assert done.exit_code == 2
    assert "is not a run folder" in done.stderr
