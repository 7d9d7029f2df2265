"""The GAN: its mode-seeking term against a loop, its shapes, and what its losses train."""

from __future__ import annotations

import pytest
import torch

from psco.networks.generative.gan import GAN, mode_seeking_loss


def test_the_mode_seeking_term_equals_its_loop():
    torch.manual_seed(0)
    x_a, x_b = torch.rand(4, 1, 3, 3).double(), torch.rand(4, 1, 3, 3).double()
    z_a, z_b = torch.randn(4, 5).double(), torch.randn(4, 5).double()
    ratios = []
    for i in range(4):
        image = sum(abs(a - b) for a, b in zip(x_a[i].flatten(), x_b[i].flatten(), strict=True)) / 9
        latent = sum(abs(a - b) for a, b in zip(z_a[i], z_b[i], strict=True)) / 5
        ratios.append(float(image / latent))
    expected = 1 / (sum(ratios) / 4 + 1e-5)
    assert mode_seeking_loss(x_a, x_b, z_a, z_b).item() == pytest.approx(expected, rel=1e-10)


def test_the_term_is_largest_but_finite_for_equal_images_and_finite_for_equal_latents():
    x, z = torch.rand(2, 1, 3, 3), torch.randn(2, 5)
    assert mode_seeking_loss(x, x, z, z + 1).item() == pytest.approx(1e5, rel=1e-3)
    assert mode_seeking_loss(x, x + 0.1, z, z).isfinite()


@pytest.mark.parametrize(("channels", "size"), [(1, 28), (3, 21)])
def test_images_have_the_asked_shape_and_pixels_between_0_and_1(channels, size):
    gan = GAN(channels, size, latent=6, width=4)
    images = gan.generate(gan.draw(3))
    assert images.shape == (3, channels, size, size)
    assert 0 <= images.min() <= images.max() <= 1
    assert gan.discriminator(images).shape == (3, 1)


def test_each_loss_trains_one_network_and_falls():
    torch.manual_seed(0)
    gan, real = GAN(1, 8, latent=4, width=8), torch.rand(32, 1, 8, 8).round()
    fake = gan.generate(gan.draw(32))
    gan.discriminator_loss(real, fake).backward()
    assert all(p.grad is None for p in gan.generator.parameters())
    optimizer = torch.optim.Adam(gan.discriminator.parameters(), 1e-2)
    losses = []
    for _ in range(40):
        loss = gan.discriminator_loss(real, fake)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert losses[-1] < 0.5 * losses[0]
    assert min(losses) > 0  # targets within [0, 1] keep the cross-entropy positive


def test_the_mode_seeking_term_keeps_the_images_apart():
    spreads = []
    for weight in (0.0, 1.0):
        torch.manual_seed(0)
        gan = GAN(1, 8, latent=4, width=8, mode_seeking=weight)
        optimizer = torch.optim.Adam(gan.generator.parameters(), 1e-2)
        for _ in range(40):
            loss, images = gan.generator_loss(gan.draw(16), gan.draw(16))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        spreads.append(images.std(dim=0).mean().item())
    assert spreads[1] > 2 * spreads[0]
