"""The study of single changes: resumable, split over processes, paired, on validation classes."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from benchmarks.accuracy.study_variants import BASE, STUDIES
from psco.recipes.build import build_views
from psco.recipes.recipe import load_recipe

ROOT = Path(__file__).parents[2]
SMALL = ["backbone.width=8", "heads.hidden=32", "heads.out=16", "train.batch_size=32"]


def study(*words: object) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "benchmarks.accuracy.study", "glyphs", *map(str, words)]
    return subprocess.run(command, capture_output=True, text=True, timeout=300, cwd=ROOT)


def test_every_variant_is_a_recipe_that_differs_from_the_base():
    for data, one in STUDIES.items():
        base = load_recipe(one.recipe, one.overrides)
        for name, change in one.variants.items():
            recipe = load_recipe(one.recipe, [*one.overrides, *change])
            assert recipe != base, (data, name)
            build_views(recipe)


def test_two_halves_make_a_table_of_paired_differences_and_nothing_is_done_twice(tmp_path):
    words = ["--out", tmp_path, "--steps", 2, "--tasks", 5, "--variants", "own-view"]
    words += ["--set", *SMALL]
    for part in ("1/2", "2/2"):
        done = study(*words, "--part", part)
        assert done.returncode == 0, done.stderr
    files = sorted(file.name for file in (tmp_path / "glyphs").glob("*.json"))
    names = ("base", "own-view")
    assert files == [f"{name}-seed-{seed}.json" for name in names for seed in (0, 1)]
    lines = {file: json.loads((tmp_path / "glyphs" / file).read_text()) for file in files}
    assert all(line["steps"] == 2 for line in lines.values())
    assert {row["split"] for line in lines.values() for row in line["results"]} == {"val"}
    assert not list((tmp_path / "glyphs" / "runs").iterdir())

    def accuracy(name: str, seed: int) -> np.ndarray:
        return np.array(lines[f"{name}-seed-{seed}.json"]["results"][0]["per_task"])

    gaps = [accuracy("own-view", seed) - accuracy(BASE, seed) for seed in (0, 1)]
    table = (tmp_path / "glyphs" / "table.md").read_text()
    row = next(line for line in table.splitlines() if line.startswith("| own-view |"))
    cell = row.split("|")[3]
    mean, first, second = re.search(r"\(([+-].*) ± .*; ([+-].*), ([+-].*)\)", cell).groups()
    assert float(mean) == pytest.approx(np.mean(gaps), abs=0.006)
    assert [float(first), float(second)] == pytest.approx([g.mean() for g in gaps], abs=0.006)
    assert "| rule ridge |" in table

    again = study(*words)
    assert again.returncode == 0
    assert again.stderr.count("exists, skipped") == 4
    other = study(*words, "--steps", 3)
    assert other.returncode == 1
    assert "has other settings" in other.stderr
