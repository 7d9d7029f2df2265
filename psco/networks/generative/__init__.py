"""Networks that draw images: auto-encoders, VAEs and GANs. Pixels are in [0, 1] throughout."""

from __future__ import annotations

from psco.networks.generative.acai import ACAI, ACAITraining
from psco.networks.generative.gan import GAN, Discriminator, GanGenerator, mode_seeking_loss
from psco.networks.generative.vae import VAE, ConvDecoder, ConvEncoder, gaussian_kl, sample_gaussian

__all__ = [
    "ACAI",
    "GAN",
    "VAE",
    "ACAITraining",
    "ConvDecoder",
    "ConvEncoder",
    "Discriminator",
    "GanGenerator",
    "gaussian_kl",
    "mode_seeking_loss",
    "sample_gaussian",
]
