"""The VAE: its loss against the formula, its shapes, and that it learns."""

from __future__ import annotations

import math

import pytest
import torch

from psco.networks import ImageFormat
from psco.networks.generative.vae import VAE, gaussian_kl, sample_gaussian


@pytest.mark.parametrize(("channels", "size"), [(1, 28), (3, 42), (1, 16)])
def test_an_image_of_any_side_comes_back_in_its_shape(channels, size):
    vae = VAE(channels, size, latent=5, width=4)
    x = torch.rand(3, channels, size, size)
    mean, log_variance = vae.encode(x)
    assert mean.shape == log_variance.shape == (3, 5)
    images = vae.generate(mean)
    assert images.shape == x.shape
    assert 0 <= images.min() <= images.max() <= 1


def test_the_divergence_from_a_standard_normal_is_that_of_a_numerical_integral():
    mean, log_variance = torch.tensor([[0.7, -1.2]]), torch.tensor([[0.3, -0.8]])
    total = 0.0
    for m, v in zip(mean[0].tolist(), log_variance[0].exp().tolist(), strict=True):
        q = torch.distributions.Normal(m, math.sqrt(v))
        p = torch.distributions.Normal(0.0, 1.0)
        x = torch.linspace(-12, 12, 200_001, dtype=torch.float64)
        density = q.log_prob(x)
        total += torch.trapezoid(density.exp() * (density - p.log_prob(x)), x).item()
    assert gaussian_kl(mean, log_variance).item() == pytest.approx(total, rel=1e-5)


def test_the_loss_is_the_sum_of_pixel_entropies_and_the_weighted_divergence():
    vae, x = VAE(1, 8, latent=3, width=4, kl_weight=0.25).eval(), torch.rand(2, 1, 8, 8)
    torch.manual_seed(0)
    loss, logs = vae.loss(x)
    torch.manual_seed(0)
    mean, log_variance = vae.encode(x)
    p = vae.generate(sample_gaussian(mean, log_variance))
    entropies = [
        -(x[i, 0, r, c] * p[i, 0, r, c].log() + (1 - x[i, 0, r, c]) * (1 - p[i, 0, r, c]).log())
        for i in range(2)
        for r in range(8)
        for c in range(8)
    ]
    assert logs["reconstruction"].item() == pytest.approx(sum(entropies).item() / 2, rel=1e-4)
    expected = sum(entropies).item() / 2 + 0.25 * gaussian_kl(mean, log_variance).mean().item()
    assert loss.item() == pytest.approx(expected, rel=1e-4)


def test_samples_have_the_mean_and_the_variance_of_the_posterior():
    torch.manual_seed(0)
    mean, log_variance = torch.tensor([2.0, -1.0]), torch.tensor([0.0, 1.0])
    z = sample_gaussian(mean.expand(50_000, 2), log_variance.expand(50_000, 2))
    torch.testing.assert_close(z.mean(0), mean, atol=0.03, rtol=0)
    torch.testing.assert_close(z.var(0), log_variance.exp(), atol=0.06, rtol=0)


def test_pixels_go_to_the_unit_interval_and_back():
    image = ImageFormat(4, 3, (0.5, 0.2, 0.9), (0.3, 0.1, 0.2))
    x = torch.rand(2, 3, 4, 4)
    for channel in range(3):
        expected = (x[:, channel] - image.mean[channel]) / image.std[channel]
        torch.testing.assert_close(image.from_unit(x)[:, channel], expected)
    torch.testing.assert_close(image.to_unit(image.from_unit(x)), x)
    assert image.to_unit(torch.full((1, 3, 4, 4), 99.0)).max() == 1
