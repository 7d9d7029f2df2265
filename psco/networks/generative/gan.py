"""A small DCGAN with the mode-seeking term (Mao et al., CVPR 2019), as LASIUM uses for Omniglot."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from psco.networks.generative.vae import quarter

_SLOPE = 0.2  # of the leaky ReLUs
_LABEL_NOISE = 0.05
_EPSILON = 1e-5  # keeps the mode-seeking term finite for images that are equal


class GanGenerator(nn.Module):
    """Maps latents (B, latent) to images (B, C, size, size) with pixels in [0, 1].

    Parameters
    ----------
    latent
        Length d of a latent.
    channels, size
        Colour channels and side of the images.
    width
        Filters of the transposed convolutions. Published: 128.
    """

    def __init__(self, latent: int, channels: int, size: int, width: int = 32) -> None:
        super().__init__()
        self.latent, self._size = latent, size
        self._shape = (width, quarter(size), quarter(size))
        self.dense = nn.Sequential(
            nn.Linear(latent, width * quarter(size) ** 2), nn.LeakyReLU(_SLOPE)
        )
        layers: list[nn.Module] = []
        for _ in range(2):
            layers += [
                nn.ConvTranspose2d(width, width, 4, stride=2, padding=1),
                nn.LeakyReLU(_SLOPE),
            ]
        self.layers = nn.Sequential(*layers, nn.Conv2d(width, channels, 7, padding=3))

    def generate(self, z: Tensor) -> Tensor:
        """Return the images (B, C, size, size) of latents (B, d)."""
        logits: Tensor = self.layers(self.dense(z).unflatten(1, self._shape))
        return logits[..., : self._size, : self._size].sigmoid()


class Discriminator(nn.Sequential):
    """Maps images (B, C, H, W) to logits (B, 1), positive for generated ones.

    Parameters
    ----------
    channels
        Colour channels of the images.
    width
        Filters of the second and third convolution; the first has half. Published: 128.
    """

    def __init__(self, channels: int, width: int = 32) -> None:
        layers: list[nn.Module] = []
        for filters in (max(1, width // 2), width, width):
            layers += [nn.Conv2d(channels, filters, 3, 2, padding=1), nn.LeakyReLU(_SLOPE)]
            channels = filters
        super().__init__(*layers, nn.AdaptiveMaxPool2d(1), nn.Flatten(), nn.Linear(width, 1))


class GAN(nn.Module):
    """Generator and discriminator, and the losses of both.

    Parameters
    ----------
    channels, size
        Colour channels and side of the images.
    latent, width
        Length of a latent, and filters of both networks.
    mode_seeking
        Weight of the mode-seeking term in the generator's loss.
    """

    def __init__(
        self,
        channels: int,
        size: int,
        latent: int = 128,
        width: int = 32,
        mode_seeking: float = 1.0,
    ) -> None:
        super().__init__()
        self.generator = GanGenerator(latent, channels, size, width)
        self.discriminator = Discriminator(channels, width)
        self.mode_seeking = mode_seeking

    def generate(self, z: Tensor) -> Tensor:
        """Return the images (B, C, size, size) of latents (B, d)."""
        return self.generator.generate(z)

    def draw(self, number: int) -> Tensor:
        """Draw latents (B, d) from N(0, I)."""
        like = next(self.parameters())
        return torch.randn(number, self.generator.latent, device=like.device, dtype=like.dtype)

    def discriminator_loss(self, real: Tensor, fake: Tensor) -> Tensor:
        """Return the mean binary cross-entropy of telling real from generated images.

        The targets, 0 and 1, are blurred by a little uniform noise. LASIUM's code adds it to both;
        here they stay within [0, 1], where the loss is bounded below.
        """
        logits = self.discriminator(torch.cat([real, fake.detach()]))  # (2B, 1)
        is_fake = torch.cat([torch.zeros(len(real), 1), torch.ones(len(fake), 1)]).to(logits)
        targets = (is_fake - _LABEL_NOISE * torch.rand_like(is_fake)).abs()
        return F.binary_cross_entropy_with_logits(logits, targets)

    def generator_loss(self, z_a: Tensor, z_b: Tensor) -> tuple[Tensor, Tensor]:
        """Return the generator's loss for latents 2 x (B, d), and their images (2B, C, H, W)."""
        images = self.generate(torch.cat([z_a, z_b]))
        logits = self.discriminator(images)
        adversarial = F.binary_cross_entropy_with_logits(logits, torch.zeros_like(logits))
        x_a, x_b = images.chunk(2)
        return adversarial + self.mode_seeking * mode_seeking_loss(x_a, x_b, z_a, z_b), images


def mode_seeking_loss(x_a: Tensor, x_b: Tensor, z_a: Tensor, z_b: Tensor) -> Tensor:
    """Return 1 / mean(|x_a - x_b| / |z_a - z_b|): large if different latents draw similar images.

    Parameters
    ----------
    x_a, x_b
        Images (B, C, H, W) of the latents.
    z_a, z_b
        Latents (B, d); distances are mean absolute differences.
    """
    images = (x_a - x_b).abs().flatten(1).mean(dim=1)  # (B,)
    latents = (z_a - z_b).abs().mean(dim=1).clamp_min(_EPSILON)  # (B,)
    return 1 / ((images / latents).mean() + _EPSILON)
