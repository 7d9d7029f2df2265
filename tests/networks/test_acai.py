"""ACAI: its losses against the published formulas, its players, and its shapes."""

from __future__ import annotations

import pytest
import torch

from psco.errors import InputError
from psco.networks.generative import ACAI, ACAITraining


def model(size: int = 16) -> ACAI:
    torch.manual_seed(0)
    return ACAI(1, size, latent=2, depth=2).double()


def images(number: int = 5, size: int = 16) -> torch.Tensor:
    return torch.rand(number, 1, size, size, generator=torch.Generator().manual_seed(1)).double()


def test_the_losses_are_those_of_the_paper_image_by_image():
    net, x, amounts = model(), images(), torch.tensor([0.0, 0.1, 0.25, 0.4, 0.5]).double()
    ours = net.losses(x, amounts)
    reconstruction, fooled, critic = [], [], []
    for i, a in enumerate(amounts):
        here, there = net.encoder(x[[i]]), net.encoder(x[[len(x) - 1 - i]])
        decoded, mixed = net.decoder(here), net.decoder(a * here + (1 - a) * there)
        reconstruction.append(((decoded - x[[i]]) ** 2).mean())
        fooled.append(net.critic(mixed).mean() ** 2)
        nearly_real = 0.2 * x[[i]] + 0.8 * decoded
        critic.append((net.critic(mixed).mean() - a) ** 2 + net.critic(nearly_real).mean() ** 2)
    mean = lambda terms: torch.stack(terms).mean()  # noqa: E731
    torch.testing.assert_close(ours.reconstruction, mean(reconstruction))
    torch.testing.assert_close(ours.autoencoder, mean(reconstruction) + 0.5 * mean(fooled))
    torch.testing.assert_close(ours.critic, mean(critic))


def test_each_player_follows_its_own_loss_alone():
    torch.manual_seed(3)
    net, x = model(), images()
    twin = model()
    torch.manual_seed(4)
    ACAITraining(net, rate=1e-3).step(x)
    torch.manual_seed(4)
    losses = twin.losses(x)
    for place, loss in (("encoder", losses.autoencoder), ("critic", losses.critic)):
        weights = list(getattr(twin, place).parameters())
        found = torch.autograd.grad(loss, weights, retain_graph=True)
        for ours, theirs in zip(getattr(net, place).parameters(), found, strict=True):
            torch.testing.assert_close(ours.grad, theirs)


def test_training_reconstructs_better_and_continues_to_the_bit():
    x = images(16).float()
    whole, parts = (ACAITraining(model().float(), rate=1e-2) for _ in range(2))
    torch.manual_seed(0)
    errors = [float(whole.step(x)) for _ in range(40)]
    assert errors[-1] < 0.7 * errors[0]
    torch.manual_seed(0)
    for _ in range(15):
        parts.step(x)
    with torch.random.fork_rng():
        resumed = ACAITraining(ACAI(1, 16, latent=2, depth=2), rate=1e-2)
    resumed.load_state_dict(parts.state_dict())
    for _ in range(25):
        resumed.step(x)
    pairs = zip(resumed.model.parameters(), whole.model.parameters(), strict=True)
    assert all(torch.equal(one, other) for one, other in pairs)


def test_a_decoder_can_start_at_the_colour_of_the_paper():
    net, white = model(), torch.ones(3, 1, 16, 16).double()
    before = net.losses(white).reconstruction
    net.start_at(torch.ones(1))
    assert net.losses(white).reconstruction < before / 4


def test_a_code_of_32_pixels_has_256_numbers():
    net = ACAI(1, 32)
    assert net.encode(torch.rand(3, 1, 32, 32)).shape == (3, net.code) == (3, 256)
    assert net.decoder(net.encoder(torch.rand(2, 1, 32, 32))).shape == (2, 1, 32, 32)


@pytest.mark.parametrize("size", [4, 28, 33])
def test_other_sides_than_powers_of_two_are_refused(size):
    with pytest.raises(InputError, match=f"8, 16, 32, 64, ... pixels, got {size}"):
        ACAI(1, size)
