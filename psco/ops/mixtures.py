"""Mixtures of Gaussians fitted by expectation maximisation, for many sets of points at once.

All functions are batched: the leading axis B counts sets, each with its own mixture. Densities are
added as logarithms, so a component far from all points is harmless.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

MIN_VARIANCE = 1e-4  # of a class, so that points that coincide do not make a density infinite
_MIN_COUNT = 1e-8  # of the points of a component


class Mixture(NamedTuple):
    """B mixtures of K Gaussians with unit covariance."""

    log_weights: Tensor  # (B, K)
    means: Tensor  # (B, K, d)


class ClassGaussians(NamedTuple):
    """A diagonal Gaussian for each of N classes of T tasks."""

    means: Tensor  # (T, N, d)
    variances: Tensor  # (T, N, d), at least `MIN_VARIANCE`


@torch.no_grad()
def fit_mixture(z: Tensor, components: int, steps: int) -> Mixture:
    """Fit means and weights by EM, starting from random points and equal weights.

    Parameters
    ----------
    z
        (B, n, d) points; n at least ``components``.
    components, steps
        K, and the number of EM steps.
    """
    start = torch.rand(z.shape[:2], device=z.device).topk(components, dim=1).indices  # (B, K)
    means = z.gather(1, start[..., None].expand(-1, -1, z.shape[2]))  # (B, K, d)
    return continue_mixture(z, Mixture(_uniform(means), means), steps)


@torch.no_grad()
def continue_mixture(z: Tensor, mixture: Mixture, steps: int) -> Mixture:
    """Take EM steps from a given mixture; its covariances stay the identity."""
    for _ in range(steps):
        r = _log_joint(z, mixture).softmax(dim=2)  # (B, n, K); terms equal for all K cancel
        counts = r.sum(dim=1).clamp_min(_MIN_COUNT)  # (B, K)
        log_weights = (counts / counts.sum(dim=1, keepdim=True)).log()
        mixture = Mixture(log_weights, r.mT @ z / counts[..., None])
    return mixture


def mixture_log_density(z: Tensor, mixture: Mixture) -> Tensor:
    """Return log p(z) (B, n) of points (B, n, d)."""
    constant = 0.5 * (z.square().sum(dim=2) + z.shape[2] * math.log(2 * math.pi))
    return _log_joint(z, mixture).logsumexp(dim=2) - constant


def gaussian_log_density(z: Tensor, mean: Tensor, log_variance: Tensor) -> Tensor:
    """Return log N(z; mean, diag(exp(log_variance))), summed over the last axis."""
    squares = (z - mean).square() * (-log_variance).exp()
    return -0.5 * (squares + log_variance + math.log(2 * math.pi)).sum(dim=-1)


@torch.no_grad()
def fit_classes(support: Tensor, labels: Tensor, query: Tensor, ways: int, steps: int) -> Tensor:
    """Fit class means to labelled and unlabelled points of tasks by semi-supervised EM.

    As in Meta-GMVAE, classes have equal weights throughout and unit covariance in the E-steps; the
    means start at those of the labelled points.

    Parameters
    ----------
    support, labels
        (T, s, d) labelled points and their classes (T, s), each of which occurs.
    query
        (T, q, d) points without labels.
    ways, steps
        N, and the number of EM steps.

    Returns
    -------
    Tensor
        (T, q, N) the responsibilities of the classes in the last E-step.
    """
    members = F.one_hot(labels, ways).to(support.dtype)  # (T, s, N)
    counts = members.sum(dim=1)[..., None]  # (T, N, 1)
    sums = members.mT @ support  # (T, N, d)
    means = sums / counts
    r = query.new_zeros(*query.shape[:2], ways)  # (T, q, N)
    for _ in range(steps):
        r = _log_joint(query, Mixture(_uniform(means), means)).softmax(dim=2)
        means = (sums + r.mT @ query) / (counts + r.sum(dim=1)[..., None])
    return r


def class_gaussians(support: Tensor, labels: Tensor, query: Tensor, r: Tensor) -> ClassGaussians:
    """Return the M-step of `fit_classes`: means and diagonal variances of all points.

    Parameters
    ----------
    support, labels, query
        As in `fit_classes`.
    r
        (T, q, N) responsibilities of the unlabelled points.
    """
    weights = torch.cat([F.one_hot(labels, r.shape[2]).to(r.dtype), r], dim=1)  # (T, s + q, N)
    z = torch.cat([support, query], dim=1)  # (T, s + q, d)
    centre = z.mean(dim=1, keepdim=True)  # squares of centred points lose fewer digits
    counts = weights.sum(dim=1)[..., None]  # (T, N, 1)
    means = weights.mT @ (z - centre) / counts  # (T, N, d)
    squares = weights.mT @ (z - centre).square() / counts
    variances = (squares - means.square()).clamp_min(MIN_VARIANCE)
    return ClassGaussians(means + centre, variances)


def class_log_densities(z: Tensor, classes: ClassGaussians) -> Tensor:
    """Return log N(z; mean_n, diag(variance_n)) (T, q, N) of points (T, q, d)."""
    precision = classes.variances.reciprocal()  # (T, N, d)
    squares = z.square() @ precision.mT - 2 * z @ (classes.means * precision).mT  # (T, q, N)
    constant = classes.means.square() * precision + classes.variances.log() + math.log(2 * math.pi)
    return -0.5 * (squares + constant.sum(dim=2)[:, None])


def _log_joint(z: Tensor, mixture: Mixture) -> Tensor:
    """Return log π_k + log N(z; m_k, I) up to a constant of z: (B, n, K)."""
    means = mixture.means
    offset = mixture.log_weights - 0.5 * means.square().sum(dim=2)  # (B, K)
    return torch.baddbmm(offset[:, None], z, means.mT)


def _uniform(means: Tensor) -> Tensor:  # (B, K, d) -> (B, K)
    K = means.shape[1]
    return means.new_full(means.shape[:2], -math.log(K))
