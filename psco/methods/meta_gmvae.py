"""Meta-GMVAE: a VAE whose prior is a mixture fitted to each set (Lee et al., ICLR 2021)."""

from __future__ import annotations

from typing import Any, ClassVar

import torch.nn.functional as F
from torch import Tensor, nn

from psco.methods.base import (
    EPISODIC_SETTINGS,
    METHODS,
    Batch,
    Logs,
    Method,
    embedding_std,
    require,
    require_positive,
)
from psco.networks.generative import ConvDecoder
from psco.networks.networks import Networks
from psco.networks.set_attention import SetPosterior
from psco.ops.mixtures import Mixture, fit_mixture, gaussian_log_density, mixture_log_density

_HIDDEN = 256  # of the decoder's MLP


@METHODS.register("meta-gmvae")
class MetaGMVAE(Method):
    """Learn latents in which a random set of images is a mixture of Gaussians.

    At test time the classes of a task take the place of the components; see the rule ``gmvae``.

    Parameters
    ----------
    networks
        f, the encoder; the heads are not used.
    components
        Gaussians K of the prior of a set. Published: the ways of the test, 5 or 20.
    em_steps
        EM steps that fit the prior, in training and at test time.
    samples, test_samples
        Latents drawn for each image in training and at test time. Published: 32 and 32. The loss
        is an unbiased estimate with any number.
    reconstructions
        How many of the latents of an image are decoded in training, which is the costly part of a
        step; the mixture and the divergence take all. Published: 32.
    set_size
        Images in a set; a batch is cut into sets. Published: 200 for 5 ways, 300 for 20.
    latent
        Length d of a latent.
    width
        Filters of the decoder's convolutions.
    """

    title, kind, views = "Meta-GMVAE", "unsupervised", 1
    rule, transfer_rule = "gmvae", "gmvae"
    distributes = False
    protocol = "transductive; inductive with queries=alone"
    paper = "Lee, Min, Lee and Hwang, ICLR 2021"
    summary = "a VAE whose prior is a mixture of Gaussians fitted to each set of images"
    training_only = ("decoder.",)
    settings: ClassVar = {
        **EPISODIC_SETTINGS,
        "train": {**EPISODIC_SETTINGS["train"], "batch_size": 800, "weight_decay": 1e-6},
    }

    def __init__(
        self,
        networks: Networks,
        components: int = 20,
        em_steps: int = 10,
        samples: int = 4,
        test_samples: int = 32,
        reconstructions: int = 1,
        set_size: int = 200,
        latent: int = 64,
        width: int = 32,
    ) -> None:
        super().__init__(networks.without_heads())
        require_positive(em_steps=em_steps, samples=samples, set_size=set_size)
        require_positive(latent=latent, width=width)
        require(components >= 2, f"components must be at least 2, got {components}")
        require_positive(test_samples=test_samples)
        require(
            1 <= reconstructions <= samples,
            f"reconstructions must be between 1 and samples, {samples}, got {reconstructions}",
        )
        self.components, self.em_steps = components, em_steps
        self.samples, self.test_samples = samples, test_samples
        self.reconstructions = reconstructions
        self.set_size, self.sets, self.latent = set_size, 1, latent
        self.posterior = SetPosterior(self.width, latent)
        image = self.image
        self.decoder = nn.Sequential(
            *(nn.Linear(latent, _HIDDEN), nn.ELU(), nn.Linear(_HIDDEN, _HIDDEN), nn.ELU()),
            ConvDecoder(_HIDDEN, image.channels, image.size, width),
        )

    def set_batch_size(self, batch_size: int) -> None:
        """Cut a batch into sets of ``set_size`` images; a smaller batch is one set."""
        self.sets = sets_in_batch(batch_size, self.set_size)
        points = batch_size // self.sets * self.samples
        require(
            points >= self.components,
            f"components must be at most the latents of a set, {points}, got {self.components}; "
            f"--set method.components={points} or a larger train.batch_size",
        )

    def posterior_of(self, features: Tensor) -> tuple[Tensor, Tensor]:
        """Return mean and log-variance, 2 x (B, n, d), of the features (B, n, width) of B sets."""
        mean, log_variance = self.posterior(features)
        return mean, log_variance

    def loss(self, batch: Batch) -> tuple[Tensor, Logs]:
        """Return the negative evidence lower bound per image, in nats."""
        x = self.image.to_unit(batch.view_a)  # (BM, C, H, W)
        features = self.backbone(batch.view_a)  # (BM, width)
        sets = features.view(self.sets, -1, self.width)  # (B, M, width)
        mean, log_variance = self.posterior_of(sets)  # (B, M, d)
        z = draw_latents(mean, log_variance, self.samples)  # (B, MS, d)
        mixture = fit_mixture(z.detach(), self.components, self.em_steps)
        kl = kl_samples(z, mean, log_variance, mixture).mean()
        decoded = z.view(*mean.shape[:2], self.samples, -1)[
            :, :, : self.reconstructions
        ]  # (B, M, R, d)
        logits = self.decoder(decoded.flatten(0, 2))  # (BMR, C, H, W)
        target = x.repeat_interleave(self.reconstructions, dim=0)
        reconstruction = F.binary_cross_entropy_with_logits(logits, target, reduction="sum")
        reconstruction = reconstruction / len(target)
        logs = {
            "reconstruction": reconstruction.detach(),
            "kl": kl.detach(),
            "embedding_std": embedding_std(self.query_head(features)),
        }
        return reconstruction + kl, logs

    def rule_options(self) -> dict[str, Any]:
        """Return the settings it was trained with."""
        return {"steps": self.em_steps, "samples": self.test_samples}


def sets_in_batch(batch_size: int, set_size: int) -> int:
    """Return into how many sets of about ``set_size`` images a batch is cut, at least one.

    Raises
    ------
    InputError
        If the sets would not be equally large.
    """
    sets = max(1, batch_size // set_size)
    require(
        batch_size % sets == 0,
        f"train.batch_size must be a multiple of method.set_size, {set_size}, got {batch_size}; "
        f"--set train.batch_size={sets * set_size}",
    )
    return sets


def draw_latents(mean: Tensor, log_variance: Tensor, samples: int) -> Tensor:
    """Draw S latents of each item: (B, nS, d), those of an item side by side, from 2 x (B, n, d).

    Gradients reach both arguments.
    """
    mean, log_variance = (t.repeat_interleave(samples, dim=1) for t in (mean, log_variance))
    noise = mean.new_empty(mean.shape).normal_()
    return mean + (0.5 * log_variance).exp() * noise


def kl_samples(z: Tensor, mean: Tensor, log_variance: Tensor, mixture: Mixture) -> Tensor:
    """Return log q(z) - log p(z) (B, nS) of latents (B, nS, d) drawn by `draw_latents`.

    Their mean is an unbiased estimate of the KL divergence from the posteriors to the mixture.
    """
    samples = z.shape[1] // mean.shape[1]
    mean, log_variance = (t.repeat_interleave(samples, dim=1) for t in (mean, log_variance))
    return gaussian_log_density(z, mean, log_variance) - mixture_log_density(z, mixture)
