"""psco export and psco classify with an ONNX file, and onnxruntime alone."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from PIL import Image
from small_models import make_images
from typer.testing import CliRunner

from psco.cli import app

EXAMPLE = Path(__file__).parents[3] / "examples" / "classify_with_onnxruntime.py"


def run(*words):
    """Run the program in this process, which is faster."""
    return CliRunner().invoke(app, list(map(str, words)))


@pytest.fixture(scope="module")
def pictures(tmp_path_factory, encoder):
    """A folder with five drawings and a file that is not a picture."""
    folder = tmp_path_factory.mktemp("pictures")
    for number, pixels in enumerate(make_images(encoder, 5)):
        Image.fromarray(pixels[:, :, 0]).resize((50, 40)).save(folder / f"{number}.png")
    (folder / "broken.png").write_bytes(b"no picture")
    return folder


@pytest.fixture(scope="module")
def onnx_file(classifier, tmp_path_factory):
    """The classifier, exported by the program."""
    folder = tmp_path_factory.mktemp("program")
    classifier.save(folder / "mine.psco")
    words = ["export", folder / "mine.psco", folder / "mine.onnx", "--json"]
    command = [sys.executable, "-m", "psco", *map(str, words)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    facts = json.loads(done.stdout)
    assert (facts["kind"], facts["classes"]) == ("classifier", ["a", "b", "c"])
    assert facts["bytes"] == (folder / "mine.onnx").stat().st_size
    assert done.stderr == ""
    return folder / "mine.onnx"


def test_classify_gives_the_same_rows_as_with_the_classifier(onnx_file, pictures):
    for_psco, for_onnx = (
        run("classify", onnx_file.with_suffix(suffix), pictures, "--json")
        for suffix in (".psco", ".onnx")
    )
    assert for_onnx.exit_code == for_psco.exit_code == 1  # for the broken picture
    expected, found = json.loads(for_psco.stdout), json.loads(for_onnx.stdout)
    assert len(found) == 6
    for mine, theirs in zip(found, expected, strict=True):
        assert mine["probability"] == pytest.approx(theirs["probability"], abs=1e-4)
        assert mine["nearest_support"] is None
        for name in ("path", "label", "runner_up", "error"):
            assert mine[name] == theirs[name]


def test_the_example_with_onnxruntime_alone_agrees(onnx_file, pictures):
    files = [str(pictures / f"{number}.png") for number in range(5)]
    command = [sys.executable, str(EXAMPLE), str(onnx_file), *files]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    rows = [line.split("\t") for line in done.stdout.splitlines()]
    expected = run("classify", onnx_file, *files).stdout.splitlines()
    assert [row[:2] for row in rows] == [line.split("\t")[:2] for line in expected]
    assert "psco" not in EXAMPLE.read_text()


def test_a_page_of_supports_cannot_be_made_from_an_onnx_file(onnx_file, pictures, tmp_path):
    done = run("classify", onnx_file, pictures, "--html", tmp_path / "page.html")
    assert done.exit_code == 2
    assert "an .onnx file has none" in done.stderr


def test_another_suffix_names_those_that_can_be_written(onnx_file, tmp_path):
    done = run("export", onnx_file.with_suffix(".psco"), tmp_path / "model.tflite")
    assert done.exit_code == 2
    assert "files that end in " in done.stderr
    assert ".onnx" in done.stderr
