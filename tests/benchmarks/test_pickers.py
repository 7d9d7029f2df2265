"""Rivals of the suggestions, with scikit-activeml as the oracle, and the study that compares."""

from __future__ import annotations

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from skactiveml.pool import CoreSet, ProbCover

from benchmarks.accuracy.pickers import PURITY, k_centre, prob_cover, pure_radius
from benchmarks.accuracy.suggestions import PICKERS, study
from psco.evaluation.rules import Embeddings
from psco.labelling.clusters import cluster


def points(number=80, seed=0):
    random = np.random.default_rng(seed)
    centres = 2 * random.standard_normal((5, 8))
    return centres[np.arange(number) % 5] + random.standard_normal((number, 8))


@pytest.mark.parametrize("seed", range(3))
def test_k_centre_is_that_of_scikit_activeml(seed):
    vectors = points(seed=seed)
    labels = np.full(len(vectors), np.nan)
    labels[7] = 0
    expected = CoreSet(random_state=0).query(vectors, labels, batch_size=9)
    assert k_centre(vectors, 10, first=7) == [7, *expected.tolist()]


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.filterwarnings("ignore:The maximum purity")
def test_every_choice_of_prob_cover_is_a_best_one_for_scikit_activeml(seed):
    vectors = points(seed=seed)
    labels = np.full(len(vectors), np.nan)
    for choice in prob_cover(vectors, 6, 2.5):
        oracle = ProbCover(deltas=[2.5], random_state=0)
        _, (gains,) = oracle.query(vectors, labels, return_utilities=True)
        assert gains[choice] == np.nanmax(gains)
        labels[choice] = 0


def test_the_radius_is_the_largest_with_pure_balls():
    vectors = points()
    groups = cluster(vectors.astype(np.float32), 5)
    distances = np.linalg.norm(vectors[:, None] - vectors, axis=2)

    def purity(radius):
        return np.mean([len({*groups[row <= radius]}) == 1 for row in distances])

    radius = pure_radius(vectors.astype(np.float32), 5)
    assert purity(radius) >= PURITY
    assert purity(radius + 0.05) < purity(radius)


def test_suggestions_find_the_classes_that_random_choice_misses():
    generator = torch.Generator().manual_seed(0)
    labels = np.repeat(np.arange(12), 15)
    centres = torch.randn(12, 16, generator=generator)
    noise = 0.3 * torch.randn(len(labels), 16, generator=generator)
    unit = F.normalize(centres[labels] + noise, dim=1)
    rows = study(Embeddings(unit, unit, unit), labels, ways=8, budget=8, pools=6, seed=0)
    found = {(row["picker"], row["labels"]): row for row in rows}
    assert len(found) == 3 * len(PICKERS)
    assert found["psco suggest", 8]["classes"]["mean"] == 8
    assert found["one true label per class", 8]["classes"]["mean"] == 8
    assert found["random", 8]["classes"]["mean"] < 7
    assert found["psco suggest", 8]["accuracy"]["mean"] > 95
