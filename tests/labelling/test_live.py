"""The live classifier: refitting a class at a time equals fitting everything."""

from __future__ import annotations

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st

from psco.classifier.calibration import Calibration
from psco.classifier.fitting import fit_model
from psco.classifier.model import Supports
from psco.evaluation.rules import Embeddings
from psco.labelling.live import Labelled, LiveClassifier
from psco.ops.prototypes import left_out_cosines, prototypes

CALIBRATION = Calibration((2, 5), (0.1, 0.05), ((0.2, 0.4, 0.6), (0.3, 0.5, 0.7)))
NAMES = st.sampled_from(["oak", "elm", "ash", None])


def embeddings(number=40, seed=0):
    generator = torch.Generator().manual_seed(seed)
    z, q = (F.normalize(torch.randn(number, 6, generator=generator), dim=1) for _ in range(2))
    return Embeddings(z, z, F.normalize(z + 0.3 * q, dim=1))


def labelled(names):
    """Return the labels of rows, by row; None has no label."""
    rows = [row for row, name in enumerate(names) if name is not None]
    classes = list(dict.fromkeys(names[row] for row in rows))
    targets = [classes.index(names[row]) for row in rows]
    as_tensor = torch.tensor
    return Labelled(
        as_tensor(rows, dtype=torch.int64),
        as_tensor(targets, dtype=torch.int64),
        classes,
        torch.zeros(len(rows)) > 0,
    )


@settings(max_examples=30)
@given(history=st.lists(st.lists(NAMES, min_size=40, max_size=40), min_size=1, max_size=4))
def test_any_change_of_labels_gives_what_a_new_classifier_gives(history):
    whole = embeddings()
    live = LiveClassifier(whole.support, whole.query, CALIBRATION)
    for names in history:
        live.refit(labelled(names))
    new = LiveClassifier(whole.support, whole.query, CALIBRATION)
    new.refit(labelled(history[-1]))
    assert live.temperature == pytest.approx(new.temperature)
    assert live.threshold == pytest.approx(new.threshold)
    if labelled(history[-1]).classes:
        for ours, theirs in zip(live.predict(), new.predict(), strict=True):
            torch.testing.assert_close(ours, theirs)


@pytest.mark.parametrize("calibration", [CALIBRATION, None])
@pytest.mark.parametrize("seed", range(3))
def test_predictions_are_those_of_the_classifier(seed, calibration):
    whole = embeddings(seed=seed)
    random = np.random.default_rng(seed)
    names = [str(name) for name in random.choice(["oak", "elm", "ash"], 25)] + [None] * 15
    labels = labelled(names)
    live = LiveClassifier(whole.support, whole.query, calibration)
    live.refit(labels)
    supports = Supports(whole[labels.rows], np.array(names[:25]))
    model = fit_model(
        supports,
        calibration=calibration,
        random=np.random.RandomState(0),
        reject_below="auto",
    )
    assert live.temperature == pytest.approx(model.temperature, rel=1e-4)
    assert live.threshold == pytest.approx(model.threshold, abs=1e-5)
    expected = model.predict(whole)
    found = live.predict()
    classes = np.array(labels.classes)
    known = ~expected.rejected
    assert (classes[found.number.numpy()][known] == expected.labels[known]).all()
    np.testing.assert_array_equal(found.unknown.numpy(), expected.rejected)
    order = np.sort(expected.probabilities, axis=1)
    np.testing.assert_allclose(found.probability, order[:, -1], atol=1e-4)
    np.testing.assert_allclose(found.margin, order[:, -1] - order[:, -2], atol=1e-4)


def test_rows_can_be_predicted_alone():
    whole = embeddings()
    live = LiveClassifier(whole.support, whole.query, None)
    live.refit(labelled(["oak", "elm", "oak", "elm"] + [None] * 36))
    rows = torch.tensor([7, 3])
    for some, every in zip(live.predict(rows), live.predict(), strict=True):
        torch.testing.assert_close(some, every[rows])


def test_one_class_alone_is_certain_and_nothing_is_rejected_without_calibration():
    whole = embeddings()
    live = LiveClassifier(whole.support, whole.query, None)
    live.refit(labelled(["oak"] + [None] * 39))
    found = live.predict()
    assert (found.probability == 1).all()
    assert not found.unknown.any()
    assert live.threshold is None


def test_cosines_without_a_support_are_those_of_prototypes_without_it():
    whole = embeddings(9)
    targets = torch.tensor([0, 0, 0, 1, 1, 2, 0, 1, 3])
    sums = torch.zeros(4, 6).index_add_(0, targets, whole.support)
    found = left_out_cosines(whole.query, whole.support, targets, sums)
    for row in range(9):
        others = torch.arange(9) != row
        centres = prototypes(whole.support[others], targets[others], 4)
        torch.testing.assert_close(found[row], whole.query[row] @ centres.T, atol=1e-5, rtol=0)


def test_a_wrong_label_is_the_most_probable_mistake():
    generator = torch.Generator().manual_seed(1)
    centres = F.normalize(torch.randn(3, 6, generator=generator), dim=1)
    truth = torch.arange(30) % 3
    noise = 0.1 * torch.randn(30, 6, generator=generator)
    vectors = F.normalize(centres[truth] + noise, dim=1)
    names = [["oak", "elm", "ash"][number] for number in truth]
    names[4] = "ash"  # an elm
    vectors[7], names[7] = -centres[1], "fir"  # alone in its class: nothing contradicts it
    live = LiveClassifier(vectors, vectors, None)
    live.refit(labelled(names))
    (mistake,) = live.mistakes()
    assert mistake[:3] == (4, "ash", "elm")
    assert mistake.probability > 0.5


def test_many_labels_of_one_class_do_not_reject_pictures_of_the_others():
    whole = embeddings()
    tight = F.normalize(whole.support[:1] + 0.01 * whole.support, dim=1)
    support = torch.cat([tight[:10], whole.support[10:]])
    live = LiveClassifier(support, support, CALIBRATION)
    singles = ["elm", "ash", "fir", "yew"]
    live.refit(labelled([*["oak"] * 10, *singles, *[None] * 26]))
    assert live.threshold < max(CALIBRATION.similarity_for(5))  # oaks alone would say 0.99
    without = LiveClassifier(support, support, None)
    without.refit(labelled([*["oak"] * 10, *singles, *[None] * 26]))
    assert without.threshold is None
