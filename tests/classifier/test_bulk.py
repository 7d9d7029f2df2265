"""Image files in bulk, in Python and with the commands fit, classify and embed."""

from __future__ import annotations

import csv
import json
import re
import subprocess
import sys
import threading
import weakref
import zipfile

import numpy as np
import pytest
import torch
import typer
from PIL import Image
from typer.testing import CliRunner

import psco.classifier.bulk
from psco.classifier import FewShotClassifier
from psco.classifier.bulk import classify_files, embed_files, fit_files, list_image_files
from psco.classifier.calibration import calibrate_run
from psco.classifier.results import Row, write_rows
from psco.cli import classify as classify_file
from psco.cli import embed as embed_file
from psco.cli import fit as fit_file
from psco.data.reading.decode import decode_image
from psco.errors import InputError
from psco.evaluation.embed import load
from psco.evaluation.rules import Embeddings
from psco.recipes.build import build_method
from psco.recipes.recipe import load_recipe
from psco.training.checkpoint import save_checkpoint, start_folder

COMMANDS = """
import typer
from psco.cli.classify import classify
from psco.cli.embed import embed
from psco.cli.fit import fit
app = typer.Typer(pretty_exceptions_enable=False)
for command in (fit, classify, embed):
    app.command()(command)
"""


@pytest.fixture
def process():
    """Run one of the three commands in a new process."""

    def run(*words: object) -> subprocess.CompletedProcess[str]:
        line = [sys.executable, "-c", f"{COMMANDS}\napp()", *map(str, words)]
        return subprocess.run(line, capture_output=True, text=True, timeout=300)

    return run


@pytest.fixture
def command():
    """Run one of the three commands in this process, which is faster."""
    app = typer.Typer()
    for function in (fit_file.fit, classify_file.classify, embed_file.embed):
        app.command()(function)
    return lambda *words: CliRunner().invoke(app, list(map(str, words)))


@pytest.fixture
def run(tmp_path, tiny):
    """Write a run folder with random weights; no predictor, so supports equal queries."""
    recipe = load_recipe("glyphs", [*tiny, "heads.predictor=false"])
    torch.manual_seed(0)
    start_folder(tmp_path / "run", recipe, {})
    save_checkpoint(tmp_path / "run", build_method(recipe), recipe, 0, {})
    return tmp_path / "run"


def draw(folder, kind: str, numbers, seed: int = 0) -> None:
    """Write images with lines across or down into a folder."""
    folder.mkdir(parents=True, exist_ok=True)
    random = np.random.default_rng(seed)
    for number in numbers:
        pixels = random.integers(180, 256, (20, 20)).astype(np.uint8)
        (pixels if kind == "across" else pixels.T)[::4] //= 4
        Image.fromarray(pixels).save(folder / f"{number}.png")


@pytest.fixture
def supports(tmp_path):
    """Write two classes of three images."""
    for seed, kind in enumerate(("across", "down")):
        draw(tmp_path / "supports" / kind, kind, range(3), seed)
    return tmp_path / "supports"


@pytest.fixture
def queries(tmp_path):
    """Write images at several depths, and a file that is not an image."""
    draw(tmp_path / "queries", "across", range(3), 7)
    draw(tmp_path / "queries" / "deep" / "deeper", "down", range(3), 8)
    (tmp_path / "queries" / "broken.png").write_bytes(b"no picture")
    (tmp_path / "queries" / "notes.txt").write_text("no picture either")
    return tmp_path / "queries"


def test_a_folder_an_archive_and_a_csv_file_give_the_same_classifier(run, supports, tmp_path):
    files = sorted(path for path in supports.rglob("*.png"))
    with zipfile.ZipFile(tmp_path / "supports.zip", "w") as archive:
        for file in files:
            archive.write(file, file.relative_to(supports))
    rows = [f"{file.relative_to(tmp_path)},{file.parent.name}\n" for file in files]
    (tmp_path / "supports.csv").write_text("path,label\n" + "".join(rows))
    made = [fit_files(run, place) for place in (supports, f"{supports}.zip", f"{supports}.csv")]
    for clf in made:
        assert clf.classes_.tolist() == ["across", "down"]
        assert clf.support_counts_.tolist() == [3, 3]
        assert torch.equal(clf.model.prepared.features, made[0].model.prepared.features)
    assert made[0].support_names_[0] == "across/0.png"


def test_rows_hold_labels_probabilities_and_the_nearest_support(run, supports):
    clf = fit_files(run, supports, rule="class-mean")
    rows = list(classify_files(clf, list_image_files([supports])))
    assert [row.path for row in rows] == [str(supports / name) for name in clf.support_names_]
    for row, name in zip(rows, clf.support_names_, strict=True):
        assert row.label == name.split("/")[0]
        assert row.runner_up == ({"across", "down"} - {row.label}).pop()
        assert row.probability + row.runner_up_probability == pytest.approx(1)
        assert row.nearest_support == name
        assert row.error == ""


def test_the_runner_up_of_an_unknown_image_is_its_most_probable_class(run, supports):
    clf = fit_files(run, supports, reject_below=1.0)
    row = next(classify_files(clf, list_image_files([supports])))
    assert (row.label, row.probability) == ("unknown", None)
    assert row.runner_up in ("across", "down")
    assert 0.5 <= row.runner_up_probability < 1


def test_files_are_embedded_in_batches_of_256(run, supports, tmp_path, monkeypatch):
    draw(tmp_path / "many", "across", range(600))
    sizes = []
    original = np.stack
    monkeypatch.setattr(
        psco.classifier.bulk.np, "stack", lambda parts: sizes.append(len(parts)) or original(parts)
    )
    clf = fit_files(run, supports)
    sizes.clear()
    rows = classify_files(clf, list_image_files([tmp_path / "many"]))
    next(rows)
    assert sizes == [256]
    assert len(list(rows)) == 599
    assert sizes == [256, 256, 88]


class Alive:
    """Calls a function and counts its results that are still alive."""

    def __init__(self, function) -> None:
        self.function, self.lock = function, threading.Lock()
        self.seen = self.now = self.most = 0

    def __call__(self, *args, **options):
        result = self.function(*args, **options)
        weakref.finalize(result, self.count, -1)
        self.count(1)
        return result

    def count(self, change: int) -> None:
        with self.lock:
            self.seen += change > 0
            self.now += change
            self.most = max(self.most, self.now)


def test_the_command_never_holds_more_than_two_batches_of_images(
    command, run, supports, tmp_path, monkeypatch
):
    file = tmp_path / "lines.psco"
    assert command("fit", run, supports, "-o", file).exit_code == 0
    draw(tmp_path / "many", "across", range(200))
    pixels, embeddings = Alive(decode_image), Alive(Embeddings)
    monkeypatch.setattr("psco.classifier.images.decode_image", pixels)
    monkeypatch.setattr("psco.classifier.images.Embeddings", embeddings)
    monkeypatch.setattr("psco.classifier.bulk.BATCH", 8)
    monkeypatch.setattr("os.cpu_count", lambda: 2)
    outputs = ["--csv", tmp_path / "out.csv", "--html", tmp_path / "out.html", "--json"]
    done = command("classify", file, tmp_path / "many", *outputs)
    assert done.exit_code == 0, done.stderr
    assert len(json.loads(done.stdout)) == pixels.seen == 200
    assert len((tmp_path / "out.csv").read_text().splitlines()) == 201
    assert pixels.most <= 2 * 8 + 4 * 2  # two batches, and what is decoded ahead
    assert embeddings.seen == 25
    assert embeddings.most <= 2


def test_a_transductive_rule_sees_all_batches_together(run, supports, queries, monkeypatch):
    clf = fit_files(run, supports, rule="transductive")
    (queries / "broken.png").rename(queries / "broken")
    whole = clf.predict_proba(sorted(queries.rglob("*.png"))).max(axis=1)
    monkeypatch.setattr(psco.classifier.bulk, "BATCH", 2)
    rows = list(classify_files(clf, list_image_files([queries])))
    assert [row.probability for row in rows] == pytest.approx(whole, abs=1e-4)


def test_files_and_folders_can_be_mixed_and_duplicates_are_dropped(queries):
    listing = list_image_files([queries / "1.png", queries / "deep", queries / "1.png"])
    assert len(listing) == 4
    assert listing.labels is None
    with pytest.raises(InputError, match="no such file"):
        list_image_files([queries / "1.png", queries / "none.png"])
    (queries / "empty").mkdir()
    with pytest.raises(InputError, match="no images in"):
        list_image_files([queries / "empty"])


def test_the_csv_file_appears_only_when_it_is_complete(tmp_path):
    rows = write_rows(
        tmp_path / "out.csv", iter([Row("a.png", "x", 0.5), Row("b.png", error="bad")])
    )
    next(rows)
    assert not (tmp_path / "out.csv").exists()
    assert len(list(rows)) == 1
    with (tmp_path / "out.csv").open() as file:
        table = list(csv.DictReader(file))
    assert [row["label"] for row in table] == ["x", ""]
    assert [row["error"] for row in table] == ["", "bad"]

    def failing():
        yield Row("a.png", "y", 0.5)
        raise RuntimeError

    with pytest.raises(RuntimeError):
        list(write_rows(tmp_path / "out.csv", failing()))
    assert "x" in (tmp_path / "out.csv").read_text()
    assert len(list(tmp_path.iterdir())) == 1


def test_embedded_files_keep_their_classes_and_undecodable_files_are_left_out(run, supports):
    (supports / "across" / "1.png").write_bytes(b"")
    found = embed_files(load(run), list_image_files([supports]))
    assert len(found.names) == len(found.embeddings) == 5
    assert found.labels.tolist() == ["across"] * 2 + ["down"] * 3
    assert found.errors == {str(supports / "across" / "1.png"): "the file is empty"}
    for path in supports.rglob("*.png"):
        path.write_bytes(b"")
    with pytest.raises(InputError, match="none of 6 images can be decoded"):
        embed_files(load(run), list_image_files([supports]))


def test_a_single_class_and_undecodable_supports_are_rejected(run, supports, tmp_path):
    draw(tmp_path / "single" / "down", "down", range(2))
    with pytest.raises(InputError, match="has 1 class, 'down'; a classifier needs at least 2"):
        fit_files(run, tmp_path / "single")
    with pytest.raises(InputError, match="has no classes; pass a folder"):
        fit_files(run, supports / "down")
    (supports / "down" / "0.png").write_bytes(b"?")
    with pytest.raises(InputError, match=r"1 of 6 supports cannot be decoded.*'down/0.png'"):
        fit_files(run, supports)
    clf = FewShotClassifier().fit(np.eye(2), ["a", "b"])
    with pytest.raises(InputError, match="fitted on features"):
        next(classify_files(clf, list_image_files([supports])))


# ------------------------------------------------------------------------------------- commands


def test_fit_and_classify_work_from_the_command_line(
    process, command, run, supports, queries, pictures, tmp_path
):
    calibrate_run(run, pictures)
    file = tmp_path / "lines.psco"
    done = command("fit", run, supports, "-o", file, "--rule", "class-mean", "--json")
    assert done.exit_code == 0, done.stderr
    assert json.loads(done.stdout)["supports"] == {"across": 3, "down": 3}
    done = process("classify", file, queries, "--csv", tmp_path / "out.csv", "--json")
    assert done.returncode == 1
    assert "1 of 7 images cannot be decoded" in done.stderr
    assert "Traceback" not in done.stderr
    with (tmp_path / "out.csv").open() as table:
        rows = list(csv.DictReader(table))
    assert list(rows[0]) == list(Row._fields)
    assert [row["label"] for row in rows] == ["across"] * 3 + [""] + ["down"] * 3
    assert "it is not PNG" in rows[3]["error"]
    assert [row["path"] for row in json.loads(done.stdout)] == [row["path"] for row in rows]
    done = command("classify", file, queries / "0.png")
    assert done.exit_code == 0, done.stderr
    assert re.fullmatch(r".*0\.png\tacross\t[01]\.\d{3}\n", done.stdout)
    done = command("classify", file, queries / "0.png", "--csv", tmp_path / "out.csv")
    assert done.stdout == f"{tmp_path / 'out.csv'}: 1 image: 1 as 'across'\n"
    done = command("classify", file, supports, "--csv", tmp_path / "out.csv")
    assert done.stdout == f"{tmp_path / 'out.csv'}: 6 images: 3 as 'across', 3 as 'down'\n"


def test_labels_that_are_numbers_are_quoted_beside_their_counts(command, run, supports, tmp_path):
    (supports / "across").rename(supports / "31")
    (supports / "down").rename(supports / "23")
    file, table = tmp_path / "numbers.psco", tmp_path / "out.csv"
    assert command("fit", run, supports, "-o", file, "--rule", "class-mean").exit_code == 0
    done = command("classify", file, supports, "--csv", table)
    assert done.stdout == f"{table}: 6 images: 3 as '23', 3 as '31'\n"


def test_classify_writes_an_html_page_with_or_without_a_csv_file(command, run, supports, tmp_path):
    file, page = tmp_path / "lines.psco", tmp_path / "out.html"
    assert command("fit", run, supports, "-o", file).exit_code == 0
    done = command("classify", file, supports, "--html", page)
    assert done.exit_code == 0, done.stderr
    assert done.stdout.startswith(f"{page}: 6 images: ")
    assert page.read_text().count("<figure") == 6
    page.unlink()
    (supports / "down" / "0.png").write_bytes(b"?")
    done = command("classify", file, supports, "--html", page, "--csv", tmp_path / "out.csv")
    assert done.exit_code == 1
    assert done.stdout.startswith(f"{tmp_path / 'out.csv'} and {page}: 5 images")
    assert "Without a result" in page.read_text()
    done = command("classify", file, supports, "--html", page, "--csv", page)
    assert done.exit_code == 2
    assert "need two different files" in done.stderr


def test_embed_writes_an_npz_file_with_features_names_and_labels(
    command, run, supports, tmp_path, no_notes_yet
):
    Image.new("RGB", (30, 20), "red").save(supports / "down" / "red.png")
    done = command("embed", run, supports, "-o", tmp_path / "features.npz")
    assert done.exit_code == 0, done.stderr
    assert done.stderr.count("converted to grey") == 1
    with np.load(tmp_path / "features.npz") as file:
        assert set(file) == {"names", "features", "support", "query", "labels"}
        assert file["features"].shape[0] == len(file["names"]) == 7
        assert np.allclose(np.linalg.norm(file["query"], axis=1), 1, atol=1e-5)
        assert file["labels"].tolist() == ["across"] * 3 + ["down"] * 4


def test_bad_input_prints_one_line_and_writes_nothing(command, run, supports, tmp_path):
    out = tmp_path / "out.psco"
    (tmp_path / "empty").mkdir()
    cases = [
        (["fit", run, tmp_path / "empty", "-o", out], "no images in"),
        (["fit", run, supports, "-o", out, "--rule", "prototipe"], "did you mean 'prototype'?"),
        (["fit", run, supports, "-o", out, "--reject", "often"], "not 'often'"),
        (["classify", supports / "down" / "0.png", supports, "--csv", out], "is not a classifier"),
        (["embed", run, supports, "-o", out], "ends in .npz"),
    ]
    for words, message in cases:
        done = command(*words)
        assert done.exit_code == 2, done.stderr
        assert message in done.stderr
        assert done.stderr.startswith("error: ")
        assert done.stderr.count("\n") == 1
        assert done.stdout == ""
        assert not out.exists()
