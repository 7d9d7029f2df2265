"""Crafted classifiers with a right checksum: one line, at once, and no gigabytes."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load, save

from psco.classifier.calibration import read_calibration
from psco.classifier.estimator import FewShotClassifier
from psco.errors import PscoError
from psco.files.checksums import write_json

FIXTURES = Path(__file__).parents[1] / "fixtures"


def craft(name: str, change: Any, out: Path) -> Path:
    """Write a classifier of the fixtures with a change to its header or its tensors."""
    content = (FIXTURES / "classifiers-format-1" / f"{name}.psco").read_bytes()
    header = json.loads(content[8 : 8 + int.from_bytes(content[:8], "little")])
    metadata = header["__metadata__"]
    about, tensors = json.loads(metadata["about"]), load(content)
    change(about, tensors)
    metadata = {**metadata, "about": json.dumps(about), "sha256": "0" * 64}
    content = save(tensors, metadata)
    digits = hashlib.sha256(content).hexdigest()
    blank = f'"sha256":"{"0" * 64}"'.encode()
    out.write_bytes(content.replace(blank, f'"sha256":"{digits}"'.encode()))
    return out


def setting(*path: Any, to: Any) -> Any:
    """Return a change of one entry of the header."""

    def change(about: dict[str, Any], _: object) -> None:
        *parents, last = path
        for key in parents:
            about = about[key]
        about[last] = to

    return change


def tensor(name: str, value: np.ndarray) -> Any:
    return lambda _, tensors: tensors.update({name: value})


CRAFTED = {
    **{
        f"temperature {value}": setting("temperature", to=value)
        for value in (0, -1.0, float("nan"), float("inf"), "hot", None, [1], 10**400)
    },
    **{
        f"threshold {value}": setting("threshold", to=value)
        for value in (float("nan"), float("inf"), "low", [0.5])
    },
    **{
        f"label_type {value}": setting("label_type", to=value)
        for value in ("<U1000000000", "|V8", "<M8[s]", "f" * 50, "no,such", 3, None, "<i8", "")
    },
    "no labels": setting("labels", to=[]),
    "one label too few": lambda about, _: about["labels"].pop(),
    "nested labels": setting("labels", to=[[1, 2]] * 6),
    "one name too few": lambda about, _: about["names"].pop(),
    "names that are numbers": setting("names", to=[1] * 6),
    "no parameters": lambda about, _: about.pop("parameters"),
    "an unknown parameter": setting("parameters", "verbose", to=1),
    "an encoder by name": setting("parameters", "encoder", to="https://example.org/x"),
    "an unknown rule": setting("parameters", "rule", to="magic"),
    "a rule that is a list": setting("parameters", "rule", to=[]),
    "an option that is unknown": setting("parameters", "rule_options", to={"k": 3}),
    "endless adaptation": setting("parameters", "adapt_steps", to=10**9),
    "a recipe that is a list": setting("recipe", to=[1]),
    "a wide network": setting("recipe", "backbone", "width", to=2**20),
    "a negative width": setting("recipe", "backbone", "width", to=-8),
    "a long queue": setting("recipe", "method", "queue_size", to=2**31 - 1),
    "large images": setting("recipe", "image", "size", to=10**6),
    "endless views": setting("recipe", "views", "at_test", to=10**9),
    "a network to fetch": setting("recipe", "backbone", to={"name": "timm:hf-hub:a/b"}),
    "an unknown method": setting("recipe", "method", "name", to="os.system"),
    "deep settings": setting("recipe", to={"a": json.loads("[" * 500 + "]" * 500)}),
    "a calibration without ways": setting("calibration", to={"format": 1}),
    "a calibration of no temperature": setting(
        "calibration",
        to={"format": 1, "ways": [2], "temperature": [0], "likeness": [[0.1]]},
    ),
    "a calibration that is not finite": setting(
        "calibration",
        to={"format": 1, "ways": [2], "temperature": [1], "likeness": [[float("nan")]]},
    ),
    "features of another length": tensor("shots.features", np.zeros((2, 8), np.float32)),
    "features without width": tensor("shots.features", np.zeros((6, 0), np.float32)),
    "features that are not finite": tensor("shots.features", np.full((6, 8), np.nan, np.float32)),
    "features that are whole numbers": tensor("shots.features", np.zeros((6, 8), np.int64)),
    "no features": lambda _, tensors: tensors.pop("shots.features"),
    "no supports": lambda _, tensors: tensors.pop("shots.support"),
    "pictures of another type": tensor("shots.pictures", np.zeros((6, 4, 4, 1), np.float32)),
    "another network": lambda _, tensors: tensors.pop(
        next(name for name in tensors if name.startswith("network."))
    ),
}


@pytest.mark.parametrize("name", CRAFTED)
def test_a_crafted_classifier_is_refused_in_one_line(name, tmp_path):
    file = craft("prototype", CRAFTED[name], tmp_path / "crafted.psco")
    with pytest.raises(PscoError, match=r"crafted\.psco") as caught:
        FewShotClassifier.load(file)
    assert len(str(caught.value)) < 1000


def test_an_unchanged_classifier_still_loads(tmp_path):
    FewShotClassifier.load(craft("prototype", lambda *_: None, tmp_path / "same.psco"))


GOOD = {"format": 1, "ways": [2, 5], "temperature": [1.0, 2.0], "likeness": [[0.1], [0.2]]}


@pytest.mark.parametrize(
    "change",
    [
        {"ways": [5, 2]},
        {"ways": [1, 5]},
        {"ways": [2]},
        {"ways": [2, 10**400]},
        {"temperature": [1.0, 0.0]},
        {"temperature": [1.0, float("inf")]},
        {"likeness": [[0.1], []]},
        {"likeness": [[float("nan")], [0.2]]},
        {"likeness": 3},
        {"format": [1]},
    ],
)
def test_a_crafted_calibration_is_refused_in_one_line(tmp_path, change):
    write_json(tmp_path / "calibration.json", GOOD)
    assert read_calibration(tmp_path).ways == (2, 5)
    write_json(tmp_path / "calibration.json", {**GOOD, **change})
    with pytest.raises(PscoError, match=r"calibration\.json (is damaged|has )"):
        read_calibration(tmp_path)
