"""Networks that draw images: auto-encoders, VAEs and GANs. Pixels are in [0, 1] throughout."""

from __future__ import annotations

from psco.networks.generative.vae import VAE, ConvDecoder, ConvEncoder, gaussian_kl, sample_gaussian

__all__ = ["VAE", "ConvDecoder", "ConvEncoder", "gaussian_kl", "sample_gaussian"]
