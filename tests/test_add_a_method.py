"""The page that shows how to add a method: its code is run as it stands there."""

from __future__ import annotations

import json
import os
import re
import shutil
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
    for match in re.finditer(r"```(?:python|yaml)\n *# (\S+)\n(.*?)```", PAGE, re.DOTALL)
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


def test_the_page_has_the_files_it_speaks_of():
    assert set(FILES) == {
        "psco/methods/rotnet.py",
        "psco/recipes/methods/rotnet.yaml",
        "tests/test_rotnet.py",
        "stages.py",
        "my_psco.py",
    }


def test_the_change_on_the_page_is_the_whole_change(tmp_path):
    shutil.copytree(ROOT / "psco", tmp_path / "psco", ignore=shutil.ignore_patterns("__pycache__"))
    (tmp_path / "tests").mkdir()
    for name in (
        "psco/methods/rotnet.py",
        "psco/recipes/methods/rotnet.yaml",
        "tests/test_rotnet.py",
    ):
        (tmp_path / name).write_text(FILES[name])
    (lines,) = re.findall(r"```diff\n--- psco/methods/__init__.py\n(.*?)```", PAGE, re.DOTALL)
    with (tmp_path / "psco" / "methods" / "__init__.py").open("a") as registry:
        registry.write(re.sub(r"^\+", "", lines, flags=re.MULTILINE))

    report = run(tmp_path, "-m", "pytest", "-q", "-p", "no:cacheprovider", "tests/test_rotnet.py")
    assert "3 passed" in report
    shown = run(
        tmp_path, "-m", "psco", "pretrain", "omniglot", "--method", "rotnet", "--print-config"
    )
    assert "name: rotnet  # --method\n  turns: 4  # default" in shown
    assert "predictor: false" in shown
    assert "flip" not in shown
    assert run(tmp_path, "-c", "import psco; print(psco.__file__)").startswith(str(tmp_path))


def test_a_method_from_outside_the_package_trains_and_is_compared(few_glyphs, tmp_path):
    (tmp_path / "rotnet.py").write_text(FILES["psco/methods/rotnet.py"])
    (tmp_path / "my_psco.py").write_text(FILES["my_psco.py"])
    for split in ("train", "test"):
        write_pictures(few_glyphs, tmp_path / split)
    changes = [word for change in TINY for word in ("--set", change)]
    run(
        *(
            tmp_path,
            "my_psco.py",
            "pretrain",
            "train",
            "--method",
            "rotnet",
            "--out",
            "runs/rotnet",
        ),
        *("--steps", 12, "--set", "train.log_steps=1", "--recipe", "glyphs", *changes),
    )
    losses = [row["total"] for row in read_metrics(tmp_path / "runs/rotnet/metrics.csv")]
    assert sum(losses[-3:]) < sum(losses[:3])
    found = json.loads(
        run(
            *(tmp_path, "my_psco.py", "compare", "runs/rotnet", "--data", "test"),
            *("--tasks", 20, "--queries", 5, "--json"),
        )
    )
    assert [(r["method"], r["rule"]) for r in found["results"]] == [
        ("rotnet", "knn"),
        ("rotnet", "class-mean"),
    ]
    assert found["results"][0]["mean"] > 25


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
