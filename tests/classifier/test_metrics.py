"""Calibration and rejection measured on tasks with foreign classes."""

from __future__ import annotations

import json

import numpy as np
import pytest

import psco
from psco.data.tasks import sample_tasks


@pytest.fixture
def images() -> psco.ImageSet:
    """Draw 8 classes of 12 pictures: blots at 8 places, in noise."""
    random = np.random.default_rng(0)
    pixels = random.integers(0, 150, (8, 12, 20, 20, 1)).astype(np.uint8)
    for number in range(8):
        row, column = divmod(number, 4)
        pixels[number, :, 10 * row : 10 * row + 8, 5 * column : 5 * column + 5] += 60
    labels = np.arange(8).repeat(12)
    return psco.ImageSet(pixels.reshape(-1, 20, 20, 1), labels, tuple("abcdefgh"), "blots", "test")


@pytest.fixture
def run(images, tmp_path, tiny):
    """Train a run for a moment, which calibrates it."""
    psco.pretrain(
        images.unlabelled(), out=tmp_path / "run", recipe="glyphs", overrides=tiny, progress=False
    )
    return tmp_path / "run"


@pytest.mark.parametrize("shots", [1, 3])
def test_the_measured_quality_is_that_of_the_classifier(run, images, shots):
    found = psco.open_set_quality(str(run), images, 3, shots, 5, 4, seed=2)
    drawn = sample_tasks(images.labels, 6, shots, 5, 4, 2)
    right, false, foreign = [], [], []
    for support, query in zip(drawn.support, drawn.query, strict=True):
        clf = psco.FewShotClassifier(run, reject_below="auto", random_state=2)
        clf.fit(images.images[support[:3].ravel()], images.labels[support[:3].ravel()])
        own, other = query[:3].ravel(), query[3:].ravel()
        chosen = clf.predict_proba(images.images[own]).argmax(axis=1)
        right.append(clf.classes_[chosen] == images.labels[own])
        false.append(clf.predict(images.images[own]) == "unknown")
        foreign.append(clf.predict(images.images[other]) == "unknown")
    assert found.accuracy == pytest.approx(np.mean(right))
    assert found.false_rejections == pytest.approx(np.mean(false))
    assert found.foreign_rejections == pytest.approx(np.mean(foreign))
    assert sum(row[0] for row in found.reliability) == 4 * 3 * 5
    assert 0 <= found.calibration_error <= 1
    assert 0 <= found.auroc <= 1
    assert json.loads(json.dumps(found.as_dict()))["ways"] == 3


def test_given_embeddings_give_the_same_result(run, images):
    encoder = psco.load(run)
    embeddings = encoder.embed(images.images)
    one = psco.open_set_quality(encoder, images, 3, tasks=5, queries=5, embeddings=embeddings)
    assert one == psco.open_set_quality(encoder, images, 3, tasks=5, queries=5)
    assert one != psco.open_set_quality(encoder, images, 3, tasks=5, queries=5, seed=1)


def test_missing_classes_labels_and_calibration_are_named(run, images):
    with pytest.raises(psco.InputError, match="need 10 classes of at least 6 images; 8 of 8"):
        psco.open_set_quality(str(run), images, 5, queries=5)
    with pytest.raises(psco.InputError, match="labelled images, got 'blots'"):
        psco.open_set_quality(str(run), images.unlabelled(), 3)
    (run / "calibration.json").unlink()
    with pytest.raises(psco.InputError, match="got 0 supports to leave out"):
        psco.open_set_quality(str(run), images, 3, queries=5)
