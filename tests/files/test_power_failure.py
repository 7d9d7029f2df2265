"""What a power failure may take: files are on disk before their names are, and the names too."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from psco.classifier.estimator import FewShotClassifier
from psco.data.reading.folders import list_folder
from psco.data.reading.pack import pack
from psco.evaluation.embed import Encoder
from psco.files.atomic import atomic_path
from psco.files.checksums import write_json
from psco.recipes.recipe import load_recipe
from psco.training.checkpoint import save_checkpoint, start_folder


class Disk:
    """Records what reaches the disk: contents by ``fsync`` of files, names by that of folders."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.events: list[tuple[str, Any]] = []
        fsync, replace = os.fsync, os.replace

        def record_fsync(descriptor: int) -> None:
            self.events.append(("fsync", os.fstat(descriptor).st_ino))
            fsync(descriptor)

        def record_replace(source: Any, target: Any, **options: Any) -> None:
            self.events.append(("rename", (Path(source).stat().st_ino, Path(target))))
            replace(source, target, **options)

        monkeypatch.setattr(os, "fsync", record_fsync)
        monkeypatch.setattr(os, "replace", record_replace)

    def check(self, target: Path) -> None:
        """Assert that the content of a file was safe before its name, and its name afterwards."""
        renames = [
            (place, about[0])
            for place, (kind, about) in enumerate(self.events)
            if kind == "rename" and about[1] == target
        ]
        assert renames, f"{target.name} was not renamed into place"
        for place, inode in renames:
            assert ("fsync", inode) in self.events[:place], f"{target.name}: content"
            folder = target.parent.stat().st_ino
            assert ("fsync", folder) in self.events[place:], f"{target.name}: name"


@pytest.fixture
def disk(monkeypatch) -> Disk:
    return Disk(monkeypatch)


def test_an_atomic_file_is_on_disk_before_its_name(tmp_path, disk):
    with atomic_path(tmp_path / "a" / "x.txt") as temporary:
        temporary.write_text("text")
    disk.check(tmp_path / "a" / "x.txt")


def test_json_is_on_disk_before_its_name(tmp_path, disk):
    write_json(tmp_path / "x.json", {"a": 1})
    disk.check(tmp_path / "x.json")


def test_all_files_of_a_checkpoint_are_on_disk_before_their_names(tmp_path, disk, tiny):
    recipe = load_recipe("glyphs", tiny)
    method = Encoder.untrained(recipe).method
    start_folder(tmp_path / "run", recipe, {})
    save_checkpoint(tmp_path / "run", method, recipe, 1, {})
    for name in ("env.json", "config.yaml", "resume.pt", "model.safetensors"):
        disk.check(tmp_path / "run" / name)


def test_a_classifier_is_on_disk_before_its_name(tmp_path, disk):
    FewShotClassifier().fit(np.eye(4), list("aabb")).save(tmp_path / "x.psco")
    disk.check(tmp_path / "x.psco")


def test_packed_images_are_on_disk_before_their_name(tmp_path, disk, monkeypatch):
    monkeypatch.setenv("PSCO_CACHE", str(tmp_path / "cache"))
    (tmp_path / "images").mkdir()
    Image.new("L", (9, 9)).save(tmp_path / "images" / "1.png")
    pack(list_folder(tmp_path / "images"), 8, 1)
    for suffix in (".npy", ".json"):
        (file,) = (tmp_path / "cache" / "packed").glob(f"*{suffix}")
        disk.check(file)


def test_the_order_of_a_recorded_disk_is_checked(tmp_path, disk):
    """The recorder itself notices a file that is renamed without being synchronised."""
    (tmp_path / "half").write_text("text")
    os.replace(tmp_path / "half", tmp_path / "whole")  # noqa: PTH105
    with pytest.raises(AssertionError, match="whole: content"):
        disk.check(tmp_path / "whole")
