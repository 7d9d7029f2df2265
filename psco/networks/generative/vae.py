"""A convolutional variational auto-encoder (Kingma and Welling, ICLR 2014).

Encoder and decoder are those of LASIUM's Omniglot experiments and can be used alone. Images are
reduced to a quarter of their side; sides that are not multiples of 4 are padded inside and cropped
at the end.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

Logs = dict[str, Tensor]


class ConvEncoder(nn.Sequential):
    """Maps images (B, C, size, size) to vectors (B, out): 3x3 convolutions of stride 2, 2, 1, 1.

    Parameters
    ----------
    channels, size
        Colour channels and side of the images.
    out
        Length of the vectors.
    width
        Filters of each convolution. Published: 64.
    """

    def __init__(self, channels: int, size: int, out: int, width: int = 32) -> None:
        layers: list[nn.Module] = []
        for stride in (2, 2, 1, 1):
            layers += [
                nn.Conv2d(channels, width, 3, stride, padding=1, bias=False),
                nn.BatchNorm2d(width),
                nn.ReLU(inplace=True),
            ]
            channels = width
        side = quarter(size)
        super().__init__(*layers, nn.Flatten(), nn.Linear(width * side**2, out))


class ConvDecoder(nn.Module):
    """Maps latents (B, latent) to the logits of pixels (B, C, size, size).

    Parameters
    ----------
    latent
        Length of a latent.
    channels, size
        Colour channels and side of the images.
    width
        Filters of each convolution. Published: 64.
    """

    def __init__(self, latent: int, channels: int, size: int, width: int = 32) -> None:
        super().__init__()
        self._shape, self._size = (width, quarter(size), quarter(size)), size
        layers: list[nn.Module] = []
        for _ in range(2):
            layers += [
                nn.ConvTranspose2d(width, width, 4, stride=2, padding=1, bias=False),
                nn.BatchNorm2d(width),
                nn.ReLU(inplace=True),
            ]
        layers += [nn.Conv2d(width, channels, 3, padding=1)]
        self.dense = nn.Sequential(
            nn.Linear(latent, width * self._shape[1] ** 2), nn.ReLU(inplace=True)
        )
        self.layers = nn.Sequential(*layers)

    def forward(self, z: Tensor) -> Tensor:
        """Return the logits (B, C, size, size) of latents (B, latent)."""
        logits: Tensor = self.layers(self.dense(z).unflatten(1, self._shape))
        return logits[..., : self._size, : self._size]


class VAE(nn.Module):
    """q(z | x) = N(mean, diag(variance)) and p(x | z), Bernoulli for each pixel.

    Parameters
    ----------
    channels, size
        Colour channels and side of the images.
    latent
        Length d of a latent.
    width
        Filters of each convolution.
    kl_weight
        Weight of the KL divergence; 1 makes the loss the negative evidence lower bound. LASIUM's
        code averages over the latent coordinates instead of adding: 1 / latent.
    """

    def __init__(
        self, channels: int, size: int, latent: int = 20, width: int = 32, kl_weight: float = 1.0
    ) -> None:
        super().__init__()
        self.encoder = ConvEncoder(channels, size, 2 * latent, width)
        self.decoder = ConvDecoder(latent, channels, size, width)
        self.latent = latent
        self.kl_weight = kl_weight

    def encode(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Return mean and log-variance, 2 x (B, d), of q(z | x) for images (B, C, H, W)."""
        mean, log_variance = self.encoder(x).chunk(2, dim=1)
        return mean, log_variance

    def decode(self, z: Tensor) -> Tensor:
        """Return the logits of the pixels (B, C, H, W) of latents (B, d)."""
        logits: Tensor = self.decoder(z)
        return logits

    def generate(self, z: Tensor) -> Tensor:
        """Return the images (B, C, H, W), pixels in [0, 1], of latents (B, d)."""
        return self.decode(z).sigmoid()

    def loss(self, x: Tensor) -> tuple[Tensor, Logs]:
        """Return reconstruction + KL per image, and both apart; one latent is drawn per image."""
        mean, log_variance = self.encode(x)
        logits = self.decode(sample_gaussian(mean, log_variance))
        reconstruction = F.binary_cross_entropy_with_logits(logits, x, reduction="sum") / len(x)
        kl = gaussian_kl(mean, log_variance).mean()
        logs = {"reconstruction": reconstruction.detach(), "kl": kl.detach()}
        return reconstruction + self.kl_weight * kl, logs


def sample_gaussian(mean: Tensor, log_variance: Tensor) -> Tensor:
    """Draw from N(mean, exp(log_variance)), elementwise; gradients reach both arguments."""
    return mean + (0.5 * log_variance).exp() * torch.randn_like(mean)


def gaussian_kl(mean: Tensor, log_variance: Tensor) -> Tensor:
    """Return KL(N(mean, exp(log_variance)) || N(0, I)), summed over the last axis."""
    return 0.5 * (mean.square() + log_variance.exp() - 1 - log_variance).sum(dim=-1)


def quarter(size: int) -> int:
    """Return a quarter of a side, rounded up."""
    return -(-size // 4)
