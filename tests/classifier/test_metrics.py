"""Calibration error, AUROC, and the quality of classifiers on open-set tasks."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

import psco
from psco.classifier.metrics import auroc, expected_calibration_error, reliability
from psco.data.tasks import sample_tasks
from psco.errors import InputError


def test_the_calibration_error_is_0_at_best_and_1_at_worst():
    assert expected_calibration_error(np.ones(4), np.ones(4)) == 0
    assert expected_calibration_error(np.ones(4), np.zeros(4)) == 1
    sure = np.array([0.9, 0.9, 0.9, 0.9, 0.6])
    right = np.array([1, 1, 1, 0, 1])
    # 4/5 of |0.9 - 0.75| and 1/5 of |0.6 - 1|
    assert expected_calibration_error(sure, right, bins=2) == pytest.approx(
        abs(4.2 - 4) / 5
    )  # one bin holds all of them
    assert expected_calibration_error(sure, right, bins=5) == pytest.approx(0.8 * 0.15 + 0.2 * 0.4)


@given(
    arrays(float, 30, elements=st.floats(0, 1)),
    arrays(bool, 30),
    st.integers(1, 40),
)
def test_the_calibration_error_is_between_0_and_1(sure, right, bins):
    assert 0 <= expected_calibration_error(sure, right, bins) <= 1


@pytest.mark.parametrize(
    ("sure", "right", "bins", "words"),
    [
        ([], [], 15, "shape"),
        ([0.5], [1, 0], 15, r"\(1,\) and \(2,\)"),
        ([1.5], [1], 15, "1.5"),
        ([math.nan], [1], 15, "nan"),
        ([0.5], [1], 0, "at least 1, got 0"),
    ],
)
def test_the_calibration_error_rejects_invalid_probabilities_and_bins(sure, right, bins, words):
    with pytest.raises(InputError, match=words):
        expected_calibration_error(np.array(sure), np.array(right), bins)


def test_reliability_counts_and_averages_each_interval():
    sure, right = np.array([0.1, 0.2, 0.95, 1.0]), np.array([False, True, True, True])
    number, means, accuracy = reliability(sure, right, bins=2)
    assert number.tolist() == [2, 2]
    assert means == pytest.approx([0.15, 0.975])
    assert accuracy == pytest.approx([0.5, 1.0])
    number, means, accuracy = reliability(sure[:1], right[:1], bins=4)
    assert (number.tolist(), means.tolist(), accuracy.tolist()) == (
        [1, 0, 0, 0],
        [0.1, 0, 0, 0],
        [0] * 4,
    )


@given(
    arrays(float, st.integers(1, 12), elements=st.integers(0, 5)),
    arrays(float, st.integers(1, 12), elements=st.integers(0, 5)),
)
def test_auroc_is_the_fraction_of_pairs_in_order(genuine, foreign):
    pairs = [(g > f) + 0.5 * (g == f) for g in genuine for f in foreign]
    assert auroc(genuine, foreign) == pytest.approx(np.mean(pairs))


def test_auroc_needs_genuine_and_foreign_scores():
    with pytest.raises(InputError, match="genuine and foreign scores, got 2 and 0"):
        auroc(np.zeros(2), np.zeros(0))


@pytest.fixture
def images() -> psco.ImageSet:
    """Draw 8 classes of 12 images: blots at 8 places, in noise."""
    random = np.random.default_rng(0)
    pixels = random.integers(0, 150, (8, 12, 20, 20, 1)).astype(np.uint8)
    for number in range(8):
        row, column = divmod(number, 4)
        pixels[number, :, 10 * row : 10 * row + 8, 5 * column : 5 * column + 5] += 60
    labels = np.arange(8).repeat(12)
    return psco.ImageSet(pixels.reshape(-1, 20, 20, 1), labels, tuple("abcdefgh"), "blots", "test")


@pytest.fixture
def run(images, tmp_path, tiny):
    """Train for a few steps, which also calibrates the run."""
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
