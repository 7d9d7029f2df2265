"""The file of a classifier: complete, portable, and protected by a checksum."""

from __future__ import annotations

import hashlib
import json
import pickle
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors import safe_open

from psco.classifier import FewShotClassifier
from psco.classifier.calibration import calibrate_run
from psco.classifier.model import Supports
from psco.errors import InputError, PscoError
from psco.recipes.build import build_method
from psco.recipes.recipe import load_recipe
from psco.training.checkpoint import save_checkpoint, start_folder


@pytest.fixture
def run(tmp_path, tiny):
    recipe = load_recipe("glyphs", tiny)
    torch.manual_seed(0)
    start_folder(tmp_path / "run", recipe, {})
    save_checkpoint(tmp_path / "run", build_method(recipe), recipe, 0, {})
    return tmp_path / "run"


@pytest.fixture
def file(run, pictures, tmp_path):
    clf = FewShotClassifier(run).fit(pictures[:6], list("aabbcc"))
    clf.save(tmp_path / "saved.psco")
    return tmp_path / "saved.psco"


def with_checksum(content: bytes) -> bytes:
    """Return the content of a file with a checksum that matches it."""
    start = content.index(b'"sha256":"') + 10
    blank = content[:start] + b"0" * 64 + content[start + 64 :]
    return blank.replace(b"0" * 64, hashlib.sha256(blank).hexdigest().encode(), 1)


def test_a_loaded_classifier_predicts_the_same_without_its_run_folder(run, pictures, tmp_path):
    calibrate_run(run, pictures)
    clf = FewShotClassifier(run, rule="class-mean", reject_below="auto", random_state=3)
    clf.fit(list(pictures[:8]), list("aabbccdd"))
    clf.save(tmp_path / "deep" / "saved.psco")
    expected = clf.predict(pictures), clf.predict_proba(pictures)
    shutil.rmtree(run)
    again = FewShotClassifier.load(tmp_path / "deep" / "saved.psco")
    assert np.array_equal(again.predict(pictures), expected[0])
    assert np.array_equal(again.predict_proba(pictures), expected[1])
    for name in ("temperature_", "threshold_", "support_names_", "n_features_in_"):
        assert getattr(again, name) == getattr(clf, name)
    assert np.array_equal(again.prototypes_, clf.prototypes_)
    given = {k: v for k, v in clf.get_params().items() if k != "encoder"}
    assert {k: v for k, v in again.get_params().items() if k != "encoder"} == given


def test_shots_can_be_added_to_a_loaded_classifier(run, pictures, tmp_path):
    calibrate_run(run, pictures)
    first = FewShotClassifier(run).fit(pictures[:3], list("abc"))
    first.save(tmp_path / "saved.psco")
    again = FewShotClassifier.load(tmp_path / "saved.psco").partial_fit(pictures[3:5], list("dd"))
    whole = FewShotClassifier(run).fit(pictures[:5], list("abcdd"))
    assert again.temperature_ == pytest.approx(whole.temperature_)
    assert np.allclose(again.predict_proba(pictures), whole.predict_proba(pictures), atol=1e-5)
    again.save(tmp_path / "saved.psco")
    assert FewShotClassifier.load(tmp_path / "saved.psco").classes_.tolist() == list("abcd")


def test_adapted_heads_are_stored_beside_the_original_ones(run, pictures, tmp_path):
    clf = FewShotClassifier(run, adapt_steps=5).fit(pictures[:4], list("aabb"))
    clf.save(tmp_path / "saved.psco")
    again = FewShotClassifier.load(tmp_path / "saved.psco")
    assert np.array_equal(again.predict_proba(pictures), clf.predict_proba(pictures))
    more = [c.partial_fit(pictures[4:6], list("cc")).predict_proba(pictures) for c in (clf, again)]
    assert np.allclose(*more, atol=1e-5)


def test_supports_and_recipe_can_be_read_with_safetensors(file):
    with safe_open(file, framework="np") as content:
        about = json.loads(content.metadata()["about"])
        small = content.get_tensor("shots.pictures")
        names = set(content.keys())
    assert small.shape == (6, 32, 32, 1)
    assert small.dtype == np.uint8
    assert about["labels"] == list("aabbcc")
    assert about["recipe"]["backbone"]["name"] == "conv4"
    assert {"shots.features", "shots.support", "shots.query"} <= names
    assert not any("queue" in name or "momentum" in name for name in names)


@pytest.mark.parametrize(
    "labels",
    [
        ["a", "b", "日本"],
        [3, 1, 2],
        [1.0, 2.0, 5.0],
        [True, False, True],
        np.array(["x", "y", "z"], dtype=object),
        np.array([1, 2, 3], dtype=np.uint8),
    ],
    ids=["text", "whole", "fraction", "truth", "object", "bytes"],
)
def test_labels_keep_their_type(labels, tmp_path):
    X = np.eye(3)
    clf = FewShotClassifier().fit(X, labels)
    clf.save(tmp_path / "saved.psco")
    again = FewShotClassifier.load(tmp_path / "saved.psco")
    assert again.classes_.dtype == clf.classes_.dtype
    assert again.predict(X).tolist() == clf.predict(X).tolist()
    assert again.encoder is None


@pytest.mark.parametrize(
    "labels",
    [np.array(["2020-01-01", "2021-01-01"], dtype="datetime64[D]"), np.array([b"a", b"b"])],
    ids=["dates", "bytes"],
)
def test_labels_that_json_cannot_hold_are_rejected_and_nothing_is_written(labels, tmp_path):
    clf = FewShotClassifier().fit(np.eye(2), [0, 1])
    clf._model.supports = Supports(clf._model.supports.embeddings, labels)
    with pytest.raises(InputError, match="labels must be text, numbers or booleans to be saved"):
        clf.save(tmp_path / "saved.psco")
    assert list(tmp_path.iterdir()) == []


def test_one_flipped_bit_anywhere_is_detected(file):
    content = file.read_bytes()
    header = 8 + int.from_bytes(content[:8], "little")
    random = np.random.default_rng(0)
    places = [*range(40), *random.integers(0, header, 300), *random.integers(0, len(content), 100)]
    start = content.index(b'"sha256":"')
    places += [*range(start, start + 75), *range(header - 10, header + 10), len(content) - 1]
    for place in places:
        changed = bytearray(content)
        changed[place] ^= 1 << int(random.integers(8))
        file.write_bytes(changed)
        with pytest.raises(PscoError, match="changed") as caught:
            FewShotClassifier.load(file)
        assert "\n" not in str(caught.value)
    file.write_bytes(content)
    FewShotClassifier.load(file)


def test_a_truncated_file_is_detected(file):
    content = file.read_bytes()
    for length in (0, 1, 8, 9, 100, 1000, len(content) // 2, len(content) - 1):
        file.write_bytes(content[:length])
        with pytest.raises(PscoError, match=r"not a classifier|was cut or changed"):
            FewShotClassifier.load(file)
    file.write_bytes(content + b"\0")
    with pytest.raises(PscoError, match="was cut or changed"):
        FewShotClassifier.load(file)


def test_another_format_is_an_error_with_advice(file):
    content = file.read_bytes()
    assert with_checksum(content) == content
    file.write_bytes(with_checksum(content.replace(b'"version":"1"', b'"version":"2"')))
    with pytest.raises(PscoError, match="has format 2 and this psco reads 1; install the psco"):
        FewShotClassifier.load(file)


def test_a_file_that_is_not_a_classifier_is_rejected(run, tmp_path):
    (tmp_path / "picture.psco").write_bytes(b"\x89PNG\r\n\x1a\n" + bytes(100))
    (tmp_path / "pickle.psco").write_bytes(pickle.dumps({"a": 1}))
    (tmp_path / "array.psco").write_bytes(b"\x02\0\0\0\0\0\0\0[]")
    for name in ("picture.psco", "pickle.psco", "array.psco", "run/model.safetensors"):
        with pytest.raises(InputError, match="is not a classifier"):
            FewShotClassifier.load(tmp_path / name)
    with pytest.raises(InputError, match="No such file"):
        FewShotClassifier.load(tmp_path / "none.psco")
    with pytest.raises(InputError, match="Is a directory"):
        FewShotClassifier.load(run)


def test_a_failed_save_leaves_the_old_file(file, monkeypatch):
    before = file.read_bytes()
    clf = FewShotClassifier.load(file)

    def fail(*_: object) -> None:
        raise OSError("disk full")

    monkeypatch.setattr("pathlib.Path.replace", fail)
    with pytest.raises(OSError, match="disk full"):
        clf.save(file)
    assert file.read_bytes() == before
    assert {path.name for path in file.parent.iterdir()} == {"run", "saved.psco"}


FIXTURES = Path(__file__).parents[1] / "fixtures" / "classifiers-format-1"
EXPECTED = json.loads((FIXTURES / "expected.json").read_text())


@pytest.mark.parametrize("name", sorted(EXPECTED))
def test_a_file_of_an_earlier_version_loads_and_predicts_the_same(name):
    clf = FewShotClassifier.load(FIXTURES / f"{name}.psco")
    with np.load(FIXTURES / "queries.npz") as queries:
        X = queries["features" if name == "features" else "images"]
    expected = EXPECTED[name]
    assert clf.predict(X).tolist() == expected["labels"]
    assert clf.predict_proba(X) == pytest.approx(np.array(expected["probabilities"]), abs=1e-4)
    assert (clf.temperature_, clf.threshold_) == (expected["temperature"], expected["threshold"])


def test_supports_can_be_added_to_a_file_of_an_earlier_version(tmp_path):
    clf = FewShotClassifier.load(FIXTURES / "prototype.psco")
    with np.load(FIXTURES / "queries.npz") as queries:
        X = queries["images"]
    clf.partial_fit(X[:2], ["new", "new"])
    assert clf.classes_.tolist() == ["across", "blot", "down", "new"]
    clf.save(tmp_path / "again.psco")
    again = FewShotClassifier.load(tmp_path / "again.psco")
    assert np.array_equal(again.predict_proba(X), clf.predict_proba(X))
