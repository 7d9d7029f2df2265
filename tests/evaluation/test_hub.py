"""Runs on the hub, with a local file tree in its place."""

from __future__ import annotations

import sys

import numpy as np
import pytest
import torch

import psco
from psco.classifier.bulk import fit_files
from psco.errors import InputError, PscoError
from psco.evaluation.hub import local_run
from psco.recipes.build import build_method
from psco.recipes.recipe import load_recipe
from psco.training.checkpoint import save_checkpoint, start_folder

# The face of the one function that is used; repositories are folders.
HUB = """
import fnmatch, pathlib, shutil

ROOT = pathlib.Path({root!r})

def snapshot_download(repo_id, *, revision=None, allow_patterns=None):
    source = ROOT / repo_id / (revision or "main")
    if not source.is_dir():
        raise OSError(f"404 Client Error. Repository Not Found for {{repo_id}}\\nmore")
    target = ROOT / "cache" / repo_id
    target.mkdir(parents=True, exist_ok=True)
    for file in source.iterdir():
        if any(fnmatch.fnmatch(file.name, pattern) for pattern in allow_patterns):
            shutil.copy(file, target)
    return str(target)
"""


@pytest.fixture
def hub(tmp_path, monkeypatch, tiny):
    """Put a run into a local tree, and a module that reads it where the hub's would be."""
    recipe = load_recipe("glyphs", tiny)
    torch.manual_seed(0)
    for revision, steps in {"main": 7, "v1.0": 3}.items():
        folder = tmp_path / "someone" / "letters" / revision
        start_folder(folder, recipe, {})
        save_checkpoint(folder, build_method(recipe), recipe, steps, {})
        (folder / "evil.py").write_text("raise SystemExit")
    (tmp_path / "stub").mkdir()
    (tmp_path / "stub" / "huggingface_hub.py").write_text(HUB.format(root=str(tmp_path)))
    monkeypatch.syspath_prepend(tmp_path / "stub")
    monkeypatch.delitem(sys.modules, "huggingface_hub", raising=False)
    yield tmp_path
    sys.modules.pop("huggingface_hub", None)


def test_a_run_on_the_hub_is_loaded_by_name(hub):
    encoder = psco.load("hf://someone/letters")
    assert encoder.steps == 7
    assert encoder.embed_query(np.zeros((2, 16, 16, 1), dtype=np.uint8)).shape == (2, 16)
    assert psco.load("hf://someone/letters@v1.0").steps == 3


def test_only_data_is_fetched(hub):
    folder = local_run("hf://someone/letters")
    assert {file.name for file in folder.iterdir()} == {
        "config.yaml",
        "model.safetensors",
        "env.json",
    }


def test_a_classifier_is_fitted_with_a_run_on_the_hub(hub, psco_images):
    classifier = fit_files("hf://someone/letters", psco_images)
    assert classifier.classes_.tolist() == ["a", "b"]


@pytest.fixture
def psco_images(tmp_path):
    from PIL import Image

    for name, level in {"a": 10, "b": 200}.items():
        (tmp_path / "supports" / name).mkdir(parents=True)
        Image.new("L", (20, 20), level).save(tmp_path / "supports" / name / "0.png")
    return tmp_path / "supports"


@pytest.mark.parametrize(
    "name", ["hf://", "hf://x", "hf://a/b/c", "hf://../..", "hf://a/b@", "hf://a/b c", "hf:///a/b"]
)
def test_other_names_say_the_form(hub, name):
    with pytest.raises(InputError, match=r"is hf://user/name\[@revision\], not"):
        psco.load(name)


def test_a_missing_repository_is_one_line(hub):
    with pytest.raises(InputError, match="Repository Not Found for someone/none") as caught:
        psco.load("hf://someone/none")
    assert "more" not in str(caught.value)


def test_without_the_extra_the_error_says_how_to_install_it(monkeypatch):
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    with pytest.raises(InputError, match=r"'.\[hub\]'"):
        psco.load("hf://someone/letters")


def test_a_hub_that_cannot_be_reached_is_an_error_of_psco(hub, monkeypatch):
    def fail(*_, **__):
        raise ConnectionError("no route to host")

    psco.load("hf://someone/letters")  # imports the module
    monkeypatch.setattr(sys.modules["huggingface_hub"], "snapshot_download", fail)
    with pytest.raises(PscoError, match="no route to host"):
        psco.load("hf://someone/letters")


def test_other_runs_are_left_as_they_are(tmp_path):
    assert local_run("imagenet") == "imagenet"
    assert local_run(tmp_path) == tmp_path
