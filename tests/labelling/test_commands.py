"""The commands suggest and similar, and what data check finds."""

from __future__ import annotations

import csv
import json

import pytest
from PIL import Image
from typer.testing import CliRunner

from psco.cli import app
from psco.labelling.session import SESSION


def call(*words):
    """Run a command in this process, which saves the time to import torch."""
    return CliRunner().invoke(app, [str(word) for word in words])


@pytest.fixture
def names(folder):
    return sorted(path.name for path in folder.iterdir())


def test_suggestions_are_listed_written_and_linked(psco, run, folder, names, tmp_path):
    out, to = tmp_path / "next.csv", tmp_path / "next"
    words = ["suggest", run, folder, "--budget", 7, "--csv", out, "--to", to, "--how", "link"]
    done = psco(*words, "--json")
    assert done.returncode == 0, done.stderr
    rows = json.loads(done.stdout)
    assert [row["reason"] for row in rows] == ["typical"] * 7
    chosen = [row["path"] for row in rows]
    assert set(chosen) <= set(names)
    with out.open() as file:
        assert [row["path"] for row in csv.DictReader(file)] == chosen
    assert {path.name for path in to.iterdir()} == set(chosen)
    assert (to / chosen[0]).samefile(folder / chosen[0])
    assert not (folder / SESSION).exists()


def test_labels_change_what_is_suggested_and_broken_pictures_fail_late(
    run, folder, names, tmp_path
):
    labels = tmp_path / "labels.csv"
    lines = [f"pictures/{name},{'ab'[place % 2]}" for place, name in enumerate(names[:20])]
    labels.write_text("\n".join(["path,label", *lines]))
    (folder / "zz.png").write_bytes(b"nothing")
    done = call("suggest", run, folder, "--budget", 6, "--labels", labels)
    assert done.exit_code == 1
    assert "zz.png" in done.stderr
    found = [line.split("\t") for line in done.stdout.splitlines()]
    assert len(found) == 6
    assert {name for name, _ in found}.isdisjoint(names[:20])
    assert {"uncertain", "far"} <= {reason for _, reason in found}


def test_the_most_similar_picture_is_the_picture_itself(run, folder, names):
    done = call("similar", run, folder, folder / names[4], "--count", 3)
    assert done.exit_code == 0, done.stderr
    lines = [line.split("\t") for line in done.stdout.splitlines()]
    assert lines[0] == ["1.000", names[4]]
    assert len(lines) == 3


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("suggest", "RUN", "FOLDER", "--budget", "0"), "--budget must be at least 1"),
        (("suggest", "RUN", "FOLDER", "--how", "move"), "--how must be copy or link"),
        (("suggest", "RUN", "nowhere"), "no folder"),
        (("similar", "RUN", "FOLDER", "nothing.png"), "nothing.png"),
        (("similar", "nothing", "FOLDER", "a.png"), "nothing"),
    ],
)
def test_bad_input_is_one_line(run, folder, words, message):
    places = {"RUN": run, "FOLDER": folder}
    done = call(*(places.get(word, word) for word in words))
    assert done.exit_code == 2
    assert message in done.stderr.splitlines()[-1]


def test_data_check_finds_near_duplicates_and_outliers(folder, names, tmp_path):
    Image.open(folder / names[2]).resize((56, 56)).save(folder / "copy.png")
    (folder / "same.png").write_bytes((folder / names[3]).read_bytes())
    black = Image.new("L", (28, 28), 0)
    black.paste(255, (0, 0, 4, 4))
    black.save(folder / "black.png")
    done = call("data", "check", folder, "--json", "--out", tmp_path)
    assert done.exit_code == 0, done.stderr
    found = json.loads(done.stdout)
    (((pair, similarity),),) = [found["near_duplicates"]]
    assert set(pair) == {names[2], "copy.png"}
    assert 0.97 <= similarity <= 1
    assert found["outliers"][0] == "black.png"
    lines = call("data", "check", folder, "--out", tmp_path).stdout
    assert "almost the same (" in lines
    assert "like no other: black.png" in lines
