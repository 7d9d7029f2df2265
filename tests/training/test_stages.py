"""Stages before the first step: resumed to the bit, checked when they are loaded."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from psco.data import ImageSet
from psco.errors import InputError, PscoError
from psco.files.disk import DiskGuard
from psco.methods import METHODS
from psco.methods.protonets import ProtoNets
from psco.methods.stages import Stage
from psco.recipes.build import build_method
from psco.recipes.recipe import load_recipe
from psco.training.stages import StageRunner
from psco.training.trainer import Trainer

UNITS = 5


class Walk(Stage):
    """Adds a random batch mean and a random number in each unit."""

    name = "walk"

    def check(self, images):
        if images < 8:
            raise InputError(f"the walk needs 8 images, got {images}")

    def start(self, inputs):
        self._inputs = inputs
        self._total = torch.randn(3)
        return UNITS

    def advance(self, unit):
        batch = self._inputs.unit(self._inputs.shuffled(unit, 8))
        self._total = self._total + torch.randn(3) + batch.mean()
        return f"total {self._total[0]:.2f}"

    def state_dict(self):
        return {"total": self._total}

    def load_state_dict(self, state):
        self._total = state["total"]

    def artefact(self):
        return {"total": self._total}


class Halves(Walk):
    """Labels images by the sign of what the walk has found."""

    name = "halves"

    def artefact(self):
        total = self._inputs.artefacts["walk"]["total"] + self._total
        noise = torch.arange(len(self._inputs)) + int(1000 * total.abs().sum())
        return {"labels": (noise // 8 % 8)[None]}


class Staged(ProtoNets):
    """ProtoNets on the labels of two stages."""

    kind = "unsupervised"

    def __init__(self, networks, ways: int = 4, shots: int = 1, queries: int = 2):
        super().__init__(networks, ways, shots, queries)
        self.found = {}

    def stages(self):
        return Walk(), Halves()

    def use_artefact(self, name, artefact):
        self.found[name] = artefact

    def labellings(self):
        return self.found["halves"]["labels"].numpy()


@pytest.fixture(autouse=True)
def staged(monkeypatch):
    """Register the method for a test."""
    monkeypatch.setitem(METHODS._entries, "staged", Staged)
    monkeypatch.setitem(METHODS._defaults, "staged", {})


@pytest.fixture
def images():
    pixels = np.random.default_rng(0).integers(0, 255, (128, 16, 16, 1), dtype=np.uint8)
    return ImageSet(pixels, name="noise")


SETTINGS = [
    "method.name=staged",
    "image.size=16",
    "image.source_size=16",
    "train.steps=4",
    "train.purity=false",
]


def train(images, out, stop=None, more=()):
    quiet = {"progress": False, "measure_quality": False}
    return Trainer(images, out, "glyphs", [*SETTINGS, *more], resume=True, stop=stop, **quiet).run()


def stop_after(calls):
    left = iter(range(calls))
    return lambda: next(left, None) is None


def test_a_run_stopped_anywhere_in_its_stages_ends_with_the_same_bits(images, tmp_path):
    train(images, tmp_path / "whole")
    # The first stage asks before each of 5 units, the second too, training before each step.
    for calls in (0, 3, 5, 7, 10, 12):
        out = tmp_path / f"after-{calls}"
        assert not train(images, out, stop_after(calls)).finished
        assert train(images, out).finished
        for name in ("stages/walk.safetensors", "stages/halves.safetensors"):
            same = (out / name).read_bytes() == (tmp_path / "whole" / name).read_bytes()
            assert same, f"{name} differs after a stop at call {calls}"
        one, other = (load_file(path / "model.safetensors") for path in (out, tmp_path / "whole"))
        assert all(torch.equal(one[name], other[name]) for name in other)
        assert not list(out.glob("stages/*.pt"))


def test_a_finished_stage_is_loaded_and_not_run_again(images, tmp_path):
    train(images, tmp_path / "run")
    artefact = tmp_path / "run/stages/walk.safetensors"
    written = artefact.stat().st_mtime_ns
    assert train(images, tmp_path / "run").finished
    assert artefact.stat().st_mtime_ns == written


@pytest.mark.parametrize("damage", ["cut", "flip"])
def test_a_damaged_artefact_is_reported_and_made_again_once_deleted(images, tmp_path, damage):
    train(images, tmp_path / "run")
    artefact = tmp_path / "run/stages/walk.safetensors"
    intact = artefact.read_bytes()
    spoilt = bytearray(intact)
    spoilt[-1] ^= 1
    artefact.write_bytes(intact[:-4] if damage == "cut" else bytes(spoilt))
    with pytest.raises(PscoError, match=r"walk\.safetensors is damaged.*delete it, and --resume"):
        train(images, tmp_path / "run")
    artefact.unlink()
    assert train(images, tmp_path / "run").finished
    assert artefact.read_bytes() == intact


def test_a_damaged_unfinished_stage_is_reported(images, tmp_path):
    train(images, tmp_path / "run", stop_after(2))
    unfinished = tmp_path / "run/stages/walk.pt"
    unfinished.write_bytes(unfinished.read_bytes()[:-9])
    with pytest.raises(PscoError, match=r"walk\.pt is damaged"):
        train(images, tmp_path / "run")


def test_an_artefact_of_another_run_is_refused(images, tmp_path):
    train(images, tmp_path / "run")
    other = ImageSet(255 - images.images, name="noise")
    recipe = load_recipe("glyphs", SETTINGS)
    method, folder = build_method(recipe), tmp_path / "run"
    runner = StageRunner(method, other, recipe, folder, DiskGuard(folder, "stop"))
    with pytest.raises(PscoError, match="other images or settings"):
        runner.run(lambda *_: False, lambda: False, progress=False)


def test_an_exchanged_artefact_is_noticed_by_the_checkpoint(images, tmp_path):
    train(images, tmp_path / "run")
    state = tmp_path / "run/resume.pt"
    train(images, tmp_path / "other", more=["train.seed=1"])
    state.write_bytes((tmp_path / "other/resume.pt").read_bytes())
    with pytest.raises(PscoError, match="not the artefact that the run was trained with"):
        train(images, tmp_path / "run")


def test_too_few_images_for_a_stage_write_nothing(images, tmp_path):
    few = ImageSet(images.images[:7])
    with pytest.raises(InputError, match="needs 8 images, got 7"):
        train(few, tmp_path / "run")
    assert not (tmp_path / "run").exists()
