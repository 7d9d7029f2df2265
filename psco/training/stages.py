"""Runs the stages of a method before its first step, and keeps their artefacts in the run folder.

stages/NAME.safetensors   the artefact of a finished stage
stages/NAME.pt            what an unfinished stage continues from

Both contain their checksum and the key of the run they belong to. The checkpoint of a run contains
the checksums of the artefacts it was trained with, so an artefact that was exchanged is noticed.
"""

from __future__ import annotations

import hashlib
import json
import re
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file

from psco.data import ImageSet
from psco.errors import PscoError, first_line
from psco.files.atomic import atomic_path, remove_leftovers
from psco.files.checksums import PLACEHOLDER, damaged, hash_file, verify_checksum, write_checksum
from psco.files.disk import DiskGuard, system_errors
from psco.methods import Method
from psco.methods.stages import Artefact, Stage, StageInputs
from psco.progress import Bar
from psco.recipes.recipe import Recipe
from psco.training.inputs import fingerprint
from psco.training.states import read_state, write_state

FOLDER = "stages"
FORMAT = 1  # part of every key; increase it with any change to how stages are run


class StageRunner:
    """Brings the stages of a method to their end, or to a stop from which they continue.

    Parameters
    ----------
    method
        Its stages are run; it takes their artefacts over.
    images
        The training images.
    recipe
        The settings.
    folder, disk
        The run folder, and what to do when its disk is full.

    Attributes
    ----------
    recipe, run_folder
        The settings and the run folder.
    checksums
        SHA-256 of the artefacts by the name of their stage, after `run`.

    Raises
    ------
    InputError
        If a stage cannot work on so many images; then nothing has been written.
    """

    def __init__(
        self, method: Method, images: ImageSet, recipe: Recipe, folder: Path, disk: DiskGuard
    ) -> None:
        self.recipe, self.run_folder = recipe, folder
        self._method, self._images = method, images
        self._folder, self._disk = folder / FOLDER, disk
        self._stages = method.stages()
        self.checksums: dict[str, str] = {}
        for stage in self._stages:
            stage.check(len(images))

    def __len__(self) -> int:
        return len(self._stages)

    def run(
        self, due: Callable[[int, float], bool], stop: Callable[[], bool], progress: bool = True
    ) -> bool:
        """Run what is missing, load what exists, and return whether all stages are finished.

        Parameters
        ----------
        due
            Whether to save a stage, given the units done and the monotonic time.
        stop
            Whether to save and stop before the next unit.
        progress
            Show a progress bar for each stage on stderr.

        Raises
        ------
        PscoError
            If a file of a stage is damaged or of another run, or cannot be written.
        """
        artefacts: dict[str, Artefact] = {}
        key = self._key()
        for number, stage in enumerate(self._stages):
            file = self._folder / f"{stage.name}.safetensors"
            if not file.exists():
                image, seed = self._method.image, self.recipe.train.seed
                inputs = StageInputs(self._images.images, image, seed, artefacts)
                with torch.random.fork_rng(), Bar(f"stage {stage.name}", progress) as bar:
                    if not self._run_stage(number, stage, inputs, key, due, stop, bar):
                        return False
                self._write(f"the artefact of stage {stage.name}", file, stage.artefact(), key)
            artefacts[stage.name] = _read_artefact(file, key)
            self.checksums[stage.name] = hash_file(file)
            (self._folder / f"{stage.name}.pt").unlink(missing_ok=True)
            self._method.use_artefact(stage.name, artefacts[stage.name])
        return True

    def _run_stage(
        self,
        number: int,
        stage: Stage,
        inputs: StageInputs,
        key: str,
        due: Callable[[int, float], bool],
        stop: Callable[[], bool],
        bar: Bar,
    ) -> bool:
        """Whether the stage has reached its end; if not, its state is saved."""
        self._folder.mkdir(parents=True, exist_ok=True)
        remove_leftovers(self._folder)
        file = self._folder / f"{stage.name}.pt"
        seed = self.recipe.train.seed
        _seed(seed, number, 0)
        units, unit = stage.start(inputs), 0
        if file.exists():
            state = _read_unfinished(file, key)
            stage.load_state_dict(state["stage"])
            unit = state["unit"]

        def save(last: bool) -> None:
            content = {"format": FORMAT, "key": key, "unit": unit, "stage": stage.state_dict()}
            name = f"unit {unit} of stage {stage.name}"
            self._disk.write(name, lambda: write_state(file, content), last)

        while unit < units:
            if stop():
                save(last=True)
                return False
            _seed(seed, number, unit + 1)
            status = stage.advance(unit)
            unit += 1
            bar.update(unit / units, status)
            if unit < units and due(unit, time.monotonic()):
                save(last=False)
        return True

    def _key(self) -> str:
        """Return a hash of all that the artefacts depend on: images, method, size and seed."""
        tree = self.recipe.model_dump(mode="json")
        facts = [FORMAT, fingerprint(self._images), tree["method"], tree["image"]]
        text = json.dumps([*facts, tree["backbone"], tree["train"]["seed"]], sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()[:32]

    def _write(self, what: str, file: Path, artefact: Artefact, key: str) -> None:
        def write() -> None:
            # One entry: safetensors writes several in any order, and equal artefacts would differ.
            about = {"psco": f"artefact, format {FORMAT}, key {key}, sha256: {PLACEHOLDER}"}
            with atomic_path(file) as temporary:
                with system_errors():
                    tensors = {n: v.detach().cpu().contiguous() for n, v in artefact.items()}
                    save_file(tensors, temporary, metadata=about)
                write_checksum(temporary)

        self._disk.write(what, write, True)


def check_same_artefacts(stored: dict[str, str], found: dict[str, str], folder: Path) -> None:
    """Raise PscoError if a run was trained with other artefacts than those that are there now."""
    for name, checksum in stored.items():
        if found.get(name) != checksum:
            raise PscoError(
                f"{folder / FOLDER / name}.safetensors is not the artefact that the run was "
                f"trained with: its sha256 is {found.get(name, 'missing')[:12]}, not "
                f"{checksum[:12]}; copy it again from an intact source, or start a new run"
            )


def _read_artefact(file: Path, key: str) -> Artefact:
    advice = "delete it, and --resume makes it again"
    has_checksum = verify_checksum(file, advice)
    try:
        with safe_open(file, framework="pt") as opened:
            about = opened.metadata() or {}
            tensors = {name: opened.get_tensor(name) for name in opened.keys()}  # noqa: SIM118
    except (SafetensorError, OSError, ValueError) as error:
        raise damaged(file, first_line(error), advice) from None
    if not has_checksum:
        raise damaged(file, "its sha256 is missing", advice)
    found = re.search("key (\\w+),", about.get("psco", ""))
    _check_key(file, found and found[1], key)
    return tensors


def _read_unfinished(file: Path, key: str) -> dict[str, Any]:
    advice = "delete it, and --resume starts the stage again"
    state, has_checksum = read_state(file, advice)
    if not has_checksum:
        raise damaged(file, "its sha256 is missing", advice)
    _check_key(file, state.get("key"), key)
    return state


def _check_key(file: Path, found: object, key: str) -> None:
    if found != key:
        raise PscoError(
            f"{file} belongs to a run with other images or settings; delete it, and --resume makes "
            f"it again"
        )


def _seed(seed: int, stage: int, unit: int) -> None:
    digest = hashlib.sha256(f"{seed} {stage} {unit}".encode()).digest()
    torch.manual_seed(int.from_bytes(digest[:7], "big"))
