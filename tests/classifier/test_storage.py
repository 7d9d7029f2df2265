"""The file of a classifier: complete, portable, and aware of every changed bit."""

from __future__ import annotations

import hashlib
import json
import pickle
import shutil

import numpy as np
import pytest
import torch
from safetensors import safe_open

from psco.classifier import FewShotClassifier
from psco.classifier.calibration import calibrate_run
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
    clf.save(tmp_path / "some.psco")
    return tmp_path / "some.psco"


def sealed(content: bytes) -> bytes:
    """Give a file with a hash that fits its content."""
    start = content.index(b'"sha256":"') + 10
    blank = content[:start] + b"0" * 64 + content[start + 64 :]
    return blank.replace(b"0" * 64, hashlib.sha256(blank).hexdigest().encode(), 1)


def test_a_classifier_outlives_the_run_it_comes_from(run, pictures, tmp_path):
    calibrate_run(run, pictures)
    clf = FewShotClassifier(run, rule="class-mean", reject_below="auto", random_state=3)
    clf.fit(list(pictures[:8]), list("aabbccdd"))
    clf.save(tmp_path / "deep" / "some.psco")
    expected = clf.predict(pictures), clf.predict_proba(pictures)
    shutil.rmtree(run)
    again = FewShotClassifier.load(tmp_path / "deep" / "some.psco")
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
    first.save(tmp_path / "some.psco")
    again = FewShotClassifier.load(tmp_path / "some.psco").partial_fit(pictures[3:5], list("dd"))
    whole = FewShotClassifier(run).fit(pictures[:5], list("abcdd"))
    assert again.temperature_ == pytest.approx(whole.temperature_)
    assert np.allclose(again.predict_proba(pictures), whole.predict_proba(pictures), atol=1e-5)
    again.save(tmp_path / "some.psco")
    assert FewShotClassifier.load(tmp_path / "some.psco").classes_.tolist() == list("abcd")


def test_adapted_heads_are_kept_beside_those_they_come_from(run, pictures, tmp_path):
    clf = FewShotClassifier(run, adapt_steps=5).fit(pictures[:4], list("aabb"))
    clf.save(tmp_path / "some.psco")
    again = FewShotClassifier.load(tmp_path / "some.psco")
    assert np.array_equal(again.predict_proba(pictures), clf.predict_proba(pictures))
    more = [c.partial_fit(pictures[4:6], list("cc")).predict_proba(pictures) for c in (clf, again)]
    assert np.allclose(*more, atol=1e-5)


def test_the_file_shows_supports_and_recipe_to_other_programs(file):
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
    clf.save(tmp_path / "some.psco")
    again = FewShotClassifier.load(tmp_path / "some.psco")
    assert again.classes_.dtype == clf.classes_.dtype
    assert again.predict(X).tolist() == clf.predict(X).tolist()
    assert again.encoder is None


@pytest.mark.parametrize(
    "labels",
    [np.array(["2020-01-01", "2021-01-01"], dtype="datetime64[D]"), np.array([b"a", b"b"])],
    ids=["dates", "bytes"],
)
def test_labels_that_json_has_no_word_for_are_refused_and_nothing_is_written(labels, tmp_path):
    clf = FewShotClassifier().fit(np.eye(2), [0, 1])
    clf._shots = type(clf._shots)(clf._shots.points, labels)
    with pytest.raises(InputError, match="a file keeps labels that are text, numbers or truth"):
        clf.save(tmp_path / "some.psco")
    assert list(tmp_path.iterdir()) == []


def test_one_flipped_bit_anywhere_is_noticed(file):
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


def test_a_file_that_was_cut_is_noticed(file):
    content = file.read_bytes()
    for length in (0, 1, 8, 9, 100, 1000, len(content) // 2, len(content) - 1):
        file.write_bytes(content[:length])
        with pytest.raises(PscoError, match=r"no classifier|was cut or changed"):
            FewShotClassifier.load(file)
    file.write_bytes(content + b"\0")
    with pytest.raises(PscoError, match="was cut or changed"):
        FewShotClassifier.load(file)


def test_another_format_says_what_to_do(file):
    content = file.read_bytes()
    assert sealed(content) == content
    file.write_bytes(sealed(content.replace(b'"version":"1"', b'"version":"2"')))
    with pytest.raises(PscoError, match="has format 2 and this psco reads 1; install the psco"):
        FewShotClassifier.load(file)


def test_what_is_no_classifier_is_refused(run, tmp_path):
    (tmp_path / "picture.psco").write_bytes(b"\x89PNG\r\n\x1a\n" + bytes(100))
    (tmp_path / "pickle.psco").write_bytes(pickle.dumps({"a": 1}))
    (tmp_path / "array.psco").write_bytes(b"\x02\0\0\0\0\0\0\0[]")
    for name in ("picture.psco", "pickle.psco", "array.psco", "run/model.safetensors"):
        with pytest.raises(InputError, match="is no classifier"):
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
    assert {path.name for path in file.parent.iterdir()} == {"run", "some.psco"}
