"""What `--reject auto` expects to reject, estimated from the supports."""

from __future__ import annotations

import numpy as np
import pytest
import torch.nn.functional as F
from torch import Tensor, from_numpy

from psco.classifier.fitting import fit_model
from psco.classifier.model import Model, Supports
from psco.classifier.rejection import rejection_rates
from psco.evaluation.rules import Embeddings


def supports(spread: float, ways: int = 6, shots: int = 8, width: int = 16) -> Supports:
    """Return classes of unit vectors around random directions."""
    random = np.random.default_rng(0)
    centres = random.normal(size=(ways, 1, width))
    x = (centres + spread * random.normal(size=(ways, shots, width))).reshape(-1, width)
    unit: Tensor = F.normalize(from_numpy(x), dim=1)
    return Supports(Embeddings(unit, unit, unit), np.repeat(np.arange(ways), shots))


def fitted(spread: float, **options: object) -> Model:
    return fit_model(
        supports(spread), random=np.random.RandomState(0), reject_below="auto", **options
    )


def test_rates_are_those_of_models_that_were_fitted_without_a_support_or_a_class():
    model = fitted(0.8)
    model.threshold += 1e-4  # it is the similarity of a support, which rounding may move
    rates = rejection_rates(model)
    unit, labels = model.supports.embeddings.support.numpy(), model.supports.labels

    def nearest(x: np.ndarray, keep: np.ndarray) -> float:
        centres = [unit[keep & (labels == c)].sum(axis=0) for c in np.unique(labels[keep])]
        return max(float(x @ centre / np.linalg.norm(centre)) for centre in centres)

    everyone = np.arange(len(labels))
    own = [nearest(unit[i], everyone != i) for i in everyone]
    foreign = [nearest(unit[i], labels != labels[i]) for i in everyone]
    assert rates.genuine == (sum(np.array(own) >= model.threshold), len(labels))
    assert rates.foreign == (sum(np.array(foreign) < model.threshold), len(labels))
    pairs = np.subtract.outer(own, foreign)
    assert rates.separation == pytest.approx((pairs > 0).mean(), abs=1e-9)


def test_classes_that_lie_apart_are_told_from_foreign_ones_without_a_warning():
    rates = rejection_rates(fitted(0.1))
    assert rates.foreign.accuracy == 1
    assert rates.separation == 1
    assert rates.warning is None


def test_classes_that_overlap_are_a_warning():
    rates = rejection_rates(fitted(3.0))
    assert rates.foreign.accuracy < 0.5
    assert "hardly tells own images from foreign ones" in rates.warning


def test_one_shot_states_that_the_rate_of_own_images_is_not_measured():
    model = fitted(0.5)
    one = supports(0.5, shots=1)
    single = fit_model(one, random=np.random.RandomState(0))
    single.threshold, single.rejects_by_similarity = model.threshold, True
    rates = rejection_rates(single)
    assert rates.genuine.total == 0
    assert "not measured" in rates.lines()[0]
    assert rates.as_dict()["genuine"] is None


@pytest.mark.parametrize("reject_below", [None, 0.5])
def test_only_an_automatic_threshold_has_expected_rates(reject_below):
    model = fit_model(supports(0.5), random=np.random.RandomState(0), reject_below=reject_below)
    assert rejection_rates(model) is None
