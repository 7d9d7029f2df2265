"""Meta-SVEBM, a reconstruction from the abstract of Kong, Pang and Wu (NeurIPS workshop, 2021).

Neither code nor a full text is public. What the abstract leaves open is filled in from the
symbol-vector coupling model of the same authors; docs/rivals.md lists every such choice. Accuracies
of this method are not those of the paper's system.
"""

from __future__ import annotations

from typing import Any, ClassVar

import torch
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
from psco.methods.meta_gmvae import sets_in_batch
from psco.networks.generative import ConvDecoder, gaussian_kl, sample_gaussian
from psco.networks.generative.latent_energy import (
    LatentEnergy,
    Weights,
    mutual_information,
    score,
    symbol_logits,
)
from psco.networks.networks import Networks
from psco.ops.langevin import langevin

_HIDDEN = 256  # of the decoder's MLP


@METHODS.register("meta-svebm")
class MetaSVEBM(Method):
    """Learn latents with an energy-based prior that is adapted to each set of images.

    Parameters
    ----------
    networks
        f, the encoder; the heads are not used.
    symbols
        Symbols y of the prior in training; at test time they are the classes of the task.
    langevin_steps, step_size
        Steps of the Langevin dynamics that samples the prior, and their size.
    inner_steps, inner_rate
        Gradient steps that adapt the prior to a set in training, and their size.
    information_weight
        Weight of the mutual information of symbols and latents in training.
    test_steps, test_rate
        Steps of Adam that fit the prior to a test task, and their size.
    set_size
        Images in a set; a batch is cut into sets.
    latent, hidden
        Length d of a latent, and hidden units of the prior.
    width
        Filters of the decoder's convolutions.
    """

    title, kind, views = "Meta-SVEBM (reconstruction from the abstract)", "unsupervised", 1
    rule, transfer_rule = "svebm", "svebm"
    distributes = False
    protocol = "transductive; inductive with queries=alone"
    paper = "after the abstract of Kong, Pang and Wu, NeurIPS workshop 2021"
    summary = "reconstruction from the abstract: a VAE with an energy-based prior for each set"
    training_only = ("decoder.",)
    settings: ClassVar = {
        **EPISODIC_SETTINGS,
        "train": {**EPISODIC_SETTINGS["train"], "batch_size": 200},
    }

    def __init__(
        self,
        networks: Networks,
        symbols: int = 20,
        langevin_steps: int = 20,
        step_size: float = 0.4,
        inner_steps: int = 1,
        inner_rate: float = 0.01,
        information_weight: float = 10.0,
        test_steps: int = 50,
        test_rate: float = 0.01,
        set_size: int = 200,
        latent: int = 64,
        hidden: int = 200,
        width: int = 32,
    ) -> None:
        super().__init__(networks.without_heads())
        require(symbols >= 2, f"symbols must be at least 2, got {symbols}")
        require(inner_steps >= 0, f"inner_steps must be at least 0, got {inner_steps}")
        require(
            information_weight >= 0,
            f"information_weight must be at least 0, got {information_weight}",
        )
        require_positive(langevin_steps=langevin_steps, step_size=step_size, inner_rate=inner_rate)
        require_positive(test_steps=test_steps, test_rate=test_rate, set_size=set_size)
        require_positive(latent=latent, hidden=hidden, width=width)
        self.langevin_steps, self.step_size = langevin_steps, step_size
        self.inner_steps, self.inner_rate = inner_steps, inner_rate
        self.information_weight = information_weight
        self.test_steps, self.test_rate = test_steps, test_rate
        self.set_size, self.sets = set_size, 1
        self.posterior = nn.Linear(self.width, 2 * latent)
        self.energy = LatentEnergy(latent, symbols, hidden)
        image = self.image
        self.decoder = nn.Sequential(
            *(nn.Linear(latent, _HIDDEN), nn.ELU(), nn.Linear(_HIDDEN, _HIDDEN), nn.ELU()),
            ConvDecoder(_HIDDEN, image.channels, image.size, width),
        )

    def set_batch_size(self, batch_size: int) -> None:
        """Cut a batch into sets of ``set_size`` images; a smaller batch is one set."""
        self.sets = sets_in_batch(batch_size, self.set_size)

    def posterior_of(self, features: Tensor) -> tuple[Tensor, Tensor]:
        """Return mean and log-variance, 2 x (..., d), of features (..., width)."""
        mean, log_variance = self.posterior(features).chunk(2, dim=-1)
        return mean, log_variance

    def loss(self, batch: Batch) -> tuple[Tensor, Logs]:
        """Return the negative evidence lower bound per image with a prior adapted to each set.

        The gradient of the prior's normaliser is that of F at samples of the prior.
        """
        x = self.image.to_unit(batch.view_a)  # (BM, C, H, W)
        features = self.backbone(batch.view_a)
        mean, log_variance = self.posterior_of(features)  # (BM, d)
        z = sample_gaussian(mean, log_variance)
        logits = self.decoder(z)
        reconstruction = F.binary_cross_entropy_with_logits(logits, x, reduction="sum") / len(x)
        kl = gaussian_kl(mean, log_variance).mean()
        sets = z.view(self.sets, -1, z.shape[1])  # (B, M, d)
        weights = self._adapt(sets.detach())
        prior, information = energy_loss(weights, sets, self.negatives(weights, sets))
        logs = {
            "reconstruction": reconstruction.detach(),
            "kl": kl.detach(),
            "information": information.detach(),
            "energy_gap": prior.detach(),
            "embedding_std": embedding_std(self.query_head(features)),
        }
        return reconstruction + kl + prior - self.information_weight * information, logs

    def negatives(self, weights: Weights, like: Tensor) -> Tensor:
        """Draw latents (B, n, d) from priors by Langevin dynamics that starts at N(0, I)."""
        weights = [w.detach() for w in weights]
        start = torch.randn_like(like)
        return langevin(lambda z: score(weights, z), start, self.langevin_steps, self.step_size)

    def _adapt(self, z: Tensor) -> Weights:
        """Return the weights of a prior for each set (B, M, d): some steps from the shared ones.

        Their gradient with respect to the shared weights is the identity, as in first-order MAML.
        """
        shared = self.energy.weights(len(z))
        moved = [w.detach().clone() for w in shared]
        for _ in range(self.inner_steps):
            leaves = [w.requires_grad_() for w in moved]
            with torch.enable_grad():
                prior, information = energy_loss(leaves, z, self.negatives(leaves, z))
                loss = len(z) * (prior - self.information_weight * information)
            gradients = torch.autograd.grad(loss, leaves)
            steps = zip(moved, gradients, strict=True)
            moved = [(w - self.inner_rate * g).detach() for w, g in steps]
        return [s + (m - s).detach() for s, m in zip(shared, moved, strict=True)]

    def rule_options(self) -> dict[str, Any]:
        """Return the settings it was trained with."""
        return {
            "steps": self.test_steps,
            "rate": self.test_rate,
            "langevin_steps": self.langevin_steps,
            "step_size": self.step_size,
        }


def energy_loss(weights: Weights, z: Tensor, negatives: Tensor) -> tuple[Tensor, Tensor]:
    """Return the loss of priors, up to a constant, and their mutual information, means over sets.

    Parameters
    ----------
    weights
        Of B priors.
    z, negatives
        Latents (B, n, d) of images, and latents (B, m, d) drawn from the priors.
    """
    logits = symbol_logits(weights, z)  # (B, n, symbols)
    positive = logits.logsumexp(dim=2).mean()
    negative = symbol_logits(weights, negatives.detach()).logsumexp(dim=2).mean()
    return negative - positive, mutual_information(logits).mean()
