"""EM of mixtures against scikit-learn and loops, and its numerics."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from sklearn.mixture import GaussianMixture
from torch.distributions import Categorical, Independent, MixtureSameFamily, Normal

from psco.ops.mixtures import (
    MIN_VARIANCE,
    ClassGaussians,
    Mixture,
    class_gaussians,
    class_log_densities,
    continue_mixture,
    fit_classes,
    fit_mixture,
    gaussian_log_density,
    mixture_log_density,
)


def clusters(sets=2, each=40, d=3, seed=0):
    """Return points (B, n, d) around four centres, some of them overlapping."""
    generator = torch.Generator().manual_seed(seed)
    centres = 2 * torch.randn(sets, 4, d, generator=generator, dtype=torch.float64)
    noise = torch.randn(sets, 4, each, d, generator=generator, dtype=torch.float64)
    return (centres[:, :, None] + noise).flatten(1, 2), centres


def sklearn_em(points, means, steps):
    """Return weights and means after EM steps of scikit-learn with unit covariance."""
    weights = np.full(len(means), 1 / len(means))
    for _ in range(steps):
        model = GaussianMixture(len(means), covariance_type="spherical")
        model.weights_, model.means_ = weights, means
        model.precisions_cholesky_ = np.ones(len(means))
        r = model.predict_proba(points)
        weights, means = r.mean(axis=0), r.T @ points / r.sum(axis=0)[:, None]
    return weights, means


@pytest.mark.parametrize("steps", [1, 10])
def test_em_is_that_of_scikit_learn_for_every_set(steps):
    z, centres = clusters()
    start = Mixture(torch.full((2, 4), 0.25, dtype=torch.float64).log(), centres + 0.7)
    ours = continue_mixture(z, start, steps)
    for b in range(2):
        weights, means = sklearn_em(z[b].numpy(), start.means[b].numpy(), steps)
        np.testing.assert_allclose(ours.log_weights[b].exp(), weights, atol=1e-10)
        np.testing.assert_allclose(ours.means[b], means, atol=1e-10)


def test_a_fit_starts_from_points_and_raises_the_likelihood():
    torch.manual_seed(0)
    z, _ = clusters()
    start = fit_mixture(z, 4, 0)
    assert all(mean in z[b] for b in range(2) for mean in start.means[b])
    assert torch.allclose(start.log_weights.exp(), torch.full((2, 4), 0.25).double())
    likelihoods = [
        mixture_log_density(z, continue_mixture(z, start, steps)).mean() for steps in range(6)
    ]
    assert likelihoods == sorted(likelihoods)


def test_log_densities_are_those_of_torch_distributions():
    z, centres = clusters()
    weights = torch.tensor([[0.1, 0.2, 0.3, 0.4], [0.7, 0.1, 0.1, 0.1]], dtype=torch.float64)
    ours = mixture_log_density(z, Mixture(weights.log(), centres))
    for b in range(2):
        parts = Independent(Normal(centres[b], 1.0), 1)
        twin = MixtureSameFamily(Categorical(weights[b]), parts).log_prob(z[b])
        torch.testing.assert_close(ours[b], twin)
    mean, log_variance = torch.randn(2, 160, 3).double(), torch.randn(2, 160, 3).double()
    normal = Independent(Normal(mean, (0.5 * log_variance).exp()), 1)
    torch.testing.assert_close(gaussian_log_density(z, mean, log_variance), normal.log_prob(z))


def test_far_points_and_empty_components_stay_finite():
    z = torch.cat([torch.zeros(1, 20, 2), torch.full((1, 5, 2), 300.0)], dim=1)
    far = Mixture(
        torch.full((1, 3), 1 / 3).log(), torch.tensor([[[0.0, 0], [300, 300], [-1e3, 0]]])
    )
    fitted = continue_mixture(z, far, 10)
    assert all(t.isfinite().all() for t in fitted)
    assert mixture_log_density(z, fitted).isfinite().all()


def loop_em(known, labels, unknown, ways, steps):
    """Fit class means as Meta-GMVAE does at test time, point by point."""
    means = np.stack([known[labels == n].mean(axis=0) for n in range(ways)])
    r = np.zeros((len(unknown), ways))
    for _ in range(steps):
        for i, z in enumerate(unknown):
            p = np.exp([-((z - m) ** 2).sum() / 2 for m in means])
            r[i] = p / p.sum()
        for n in range(ways):
            total = known[labels == n].sum(axis=0) + (r[:, n : n + 1] * unknown).sum(axis=0)
            means[n] = total / ((labels == n).sum() + r[:, n].sum())
    points = np.concatenate([known, unknown])
    weights = np.concatenate([np.eye(ways)[labels], r])
    variances = np.stack(
        [np.average((points - means[n]) ** 2, axis=0, weights=weights[:, n]) for n in range(ways)]
    )
    return r, means, variances


@pytest.mark.parametrize("steps", [1, 10])
def test_semi_supervised_em_equals_its_loop(steps):
    points, _ = clusters(sets=2, each=9)
    labels = torch.tensor([[0, 1, 2, 3, 0, 1], [3, 2, 1, 0, 0, 0]])
    known, unknown = points[:, ::6][:, :6], points[:, 1::2]
    r = fit_classes(known, labels, unknown, 4, steps)
    fitted = class_gaussians(known, labels, unknown, r)
    for t in range(2):
        arrays = known[t].numpy(), labels[t].numpy(), unknown[t].numpy()
        twin_r, means, variances = loop_em(*arrays, 4, steps)
        np.testing.assert_allclose(r[t], twin_r, atol=1e-10)
        np.testing.assert_allclose(fitted.means[t], means, atol=1e-10)
        np.testing.assert_allclose(fitted.variances[t], variances, atol=1e-10)
    scores = class_log_densities(unknown, fitted)
    for n in range(4):
        normal = Normal(fitted.means[:, n : n + 1], fitted.variances[:, n : n + 1].sqrt())
        torch.testing.assert_close(scores[..., n], normal.log_prob(unknown).sum(dim=2))


def test_points_that_coincide_have_the_smallest_variance_and_finite_scores():
    known = torch.ones(1, 2, 3) * torch.tensor([1.0, 2.0])[None, :, None] * 100
    labels = torch.tensor([[0, 1]])
    r = fit_classes(known, labels, known, 2, 10)
    fitted = class_gaussians(known, labels, known, r)
    assert fitted.variances.min() >= MIN_VARIANCE
    scores = class_log_densities(known, fitted)
    assert scores.isfinite().all()
    assert scores.argmax(dim=2).tolist() == [[0, 1]]
    assert isinstance(fitted, ClassGaussians)
