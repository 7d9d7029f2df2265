"""The fitted model: rules are fitted once, and supports can be compared with queries."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np
import pytest
from numpy.random import RandomState

from psco.classifier.features import embed_features
from psco.classifier.fitting import fit_model
from psco.classifier.model import Model, Supports
from psco.evaluation.rules.regression import Logistic


@dataclass(frozen=True)
class CountedLogistic(Logistic):
    """Logistic regression that counts how often it is fitted."""

    fits: list[int] = field(default_factory=list)
    transductive: ClassVar[bool] = False

    def fit(self, support):
        self.fits.append(1)
        return super().fit(support)


@pytest.fixture
def supports() -> Supports:
    """Draw twelve features (12, 5) of three classes."""
    y = np.arange(12) % 3
    X = 3 * np.eye(5)[y] + np.random.default_rng(0).normal(size=(12, 5))
    return Supports(embed_features(X), y, from_encoder=False)


def test_the_rule_is_fitted_once_for_any_number_of_predictions(supports):
    rule = CountedLogistic()
    model = Model(supports, rule)
    model.fit()
    assert len(rule.fits) == 1
    queries = supports.embeddings
    first = model.predict(queries)
    model.temperature = 2.0
    for _ in range(3):
        assert np.array_equal(model.predict(queries).labels, first.labels)
    assert len(rule.fits) == 1


def test_a_prediction_does_not_depend_on_the_other_queries_of_a_call(supports):
    for rule in ("prototype", "logistic", "ridge", "linear", "knn"):
        model = fit_model(supports, random=RandomState(0), rule=rule)
        whole = model.predict(supports.embeddings).probabilities
        for i in range(12):
            one = model.predict(embed_features(supports.embeddings.features[[i]].numpy()))
            assert one.probabilities[0] == pytest.approx(whole[i], abs=1e-6)


def test_the_nearest_support_of_a_support_is_itself(supports):
    model = fit_model(supports, random=RandomState(0))
    assert model.nearest_support(supports.embeddings).tolist() == list(range(12))


def test_the_similarity_is_that_to_the_nearest_class_centre(supports):
    model = fit_model(supports, random=RandomState(0), rule="knn")
    features = supports.embeddings.features.numpy()
    means = np.stack([features[np.arange(12) % 3 == label].mean(axis=0) for label in range(3)])
    centred = features - features.mean(axis=0)
    distances = ((features[:, None] - means) ** 2).sum(axis=2).min(axis=1)
    expected = -distances / (centred**2).mean()
    assert model.similarity(supports.embeddings) == pytest.approx(expected)
    assert model.prototypes == pytest.approx(means)
