"""The page that shows how to add a method: its code is run as it stands there."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

import psco as package
from psco.training.logging import read_metrics

ROOT = Path(__file__).parents[1]
PAGE = (ROOT / "docs" / "add-a-method.md").read_text()
FILES = {
    match[1]: textwrap.dedent(match[2])
    for match in re.finditer(r"```(?:python|toml)\n *# (\S+)\n(.*?)```", PAGE, re.DOTALL)
}
TINY = [
    "train.purity=false",
    "backbone.width=8",
    "heads.hidden=16",
    "train.batch_size=32",
    "train.warmup_steps=0",
]


def run(folder: Path, *words: object) -> str:
    path = os.pathsep.join([str(folder), os.environ.get("PYTHONPATH", "")])
    done = subprocess.run(
        [sys.executable, *map(str, words)],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": path},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture
def package_folder(tmp_path):
    """Install the package of the page: its modules, and the entry points that pip would write."""
    for name in ("rotnet.py", "test_rotnet.py"):
        (tmp_path / name).write_text(FILES[name])
    tomllib = pytest.importorskip("tomllib")  # Python 3.11
    project = tomllib.loads(FILES["pyproject.toml"])["project"]
    info = tmp_path / f"{project['name']}-{project['version']}.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: rotnet\nVersion: 1.0\n")
    groups = [
        f"[{group}]\n" + "".join(f"{name} = {value}\n" for name, value in points.items())
        for group, points in project["entry-points"].items()
    ]
    (info / "entry_points.txt").write_text("\n".join(groups))
    return tmp_path


def test_the_page_has_the_files_it_speaks_of():
    assert set(FILES) == {"rotnet.py", "pyproject.toml", "test_rotnet.py", "stages.py"}


def test_the_test_on_the_page_passes(package_folder):
    report = run(package_folder, "-m", "pytest", "-q", "-p", "no:cacheprovider", "test_rotnet.py")
    assert "3 passed" in report


def test_an_installed_method_is_listed_and_changes_the_recipe(package_folder):
    assert "rotnet" in run(package_folder, "-m", "psco", "methods", "--json")
    shown = run(
        *(package_folder, "-m", "psco", "pretrain", "omniglot", "--method", "rotnet"),
        "--print-config",
    )
    assert "name: rotnet  # --method\n  turns: 4  # default" in shown
    assert "predictor: false" in shown
    assert "flip:\n" not in shown


def test_an_installed_method_trains_and_is_compared(few_glyphs, package_folder):
    for split in ("train", "test"):
        write_pictures(few_glyphs, package_folder / split)
    changes = [word for change in TINY for word in ("--set", change)]
    psco = (package_folder, "-m", "psco")
    run(
        *(*psco, "pretrain", "train", "--method", "rotnet", "--out", "runs/rotnet"),
        *("--steps", 12, "--set", "train.log_steps=1", "--recipe", "glyphs", *changes),
    )
    losses = [row["total"] for row in read_metrics(package_folder / "runs/rotnet/metrics.csv")]
    assert sum(losses[-3:]) < sum(losses[:3])
    found = json.loads(
        run(
            *(*psco, "compare", "runs/rotnet", "--data", "test"),
            *("--tasks", 20, "--queries", 5, "--json"),
        )
    )
    assert [(r["method"], r["rule"]) for r in found["results"]] == [
        ("rotnet", "knn"),
        ("rotnet", "class-mean"),
    ]
    assert found["results"][0]["mean"] > 25


def test_a_broken_plugin_is_reported_and_the_others_go_on(package_folder):
    (package_folder / "rotnet.py").write_text("raise RuntimeError('no such card')\n")
    code = "import warnings, psco; warnings.simplefilter('always'); print(list(psco.METHODS))"
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "PYTHONPATH": f"{package_folder}{os.pathsep}{ROOT}"},
        capture_output=True,
        text=True,
    )
    assert "method 'rotnet' (rotnet:RotNet) cannot be loaded: no such card" in done.stderr
    assert "psco" in done.stdout


def test_a_run_of_an_unregistered_method_says_what_is_missing(tmp_path, few_glyphs, small):
    package.pretrain(
        few_glyphs, out=tmp_path / "run", recipe="glyphs", method="random", overrides=small
    )
    config = tmp_path / "run" / "config.yaml"
    lines = config.read_text().splitlines(keepends=True)[1:]  # without the hash
    config.write_text("".join(lines).replace("name: random", "name: rotnet"))
    with pytest.raises(package.InputError, match="unknown method 'rotnet'"):
        package.load(tmp_path / "run")


@pytest.mark.usefixtures("quick_calibration")
def test_stages_hand_labels_on(few_glyphs, small, tmp_path):
    stages: dict[str, object] = {}
    exec(FILES["stages.py"], stages)
    options = {"recipe": "glyphs", "steps": 2, "overrides": small, "progress": False}
    package.pretrain(few_glyphs, out=tmp_path / "first", method="simclr", **options)
    second = stages["cluster_then_train"](  # type: ignore[operator]
        few_glyphs.unlabelled(), tmp_path / "first", tmp_path / "second", clusters=15, **options
    )
    assert second.finished
    assert package.load(second.folder).recipe.method.name == "protonets"


def write_pictures(images, folder: Path) -> None:
    from PIL import Image

    for number in range(0, 300, 2):
        label = int(images.labels[number])
        (folder / f"class{label:02d}").mkdir(parents=True, exist_ok=True)
        picture = Image.fromarray(images.images[number, :, :, 0])
        picture.save(folder / f"class{label:02d}" / f"{number}.png")
