"""The test of Meta-GMVAE: a mixture with a component for each class, fitted to the whole task."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

import torch
from torch import Tensor

from psco.errors import InputError
from psco.evaluation.rules.rule import Embeddings, SupportSet
from psco.methods.meta_gmvae import MetaGMVAE
from psco.ops.mixtures import class_gaussians, class_log_densities, fit_classes

Queries = Literal["together", "alone"]
_ITEMS_AT_ONCE = 4096  # of all sets that are encoded together


@dataclass(frozen=True)
class SemiSupervisedEM:
    """Encode supports and queries as one set, then fit the classes to both by EM.

    Parameters
    ----------
    steps
        EM steps.
    samples
        Latents drawn for each image.
    queries
        ``together`` as published, or ``alone``: each query is encoded and fitted with the supports
        only, so that predictions do not depend on one another.
    seed
        Decides the latents, together with the number of the task.
    """

    steps: int = 10
    samples: int = 32
    queries: Queries = "together"
    seed: int = 0
    needs_method: ClassVar[str] = "meta-gmvae"
    tasks_at_once: ClassVar[int] = 16

    @property
    def transductive(self) -> bool:
        """Whether the queries of a task are encoded and fitted together."""
        return self.queries == "together"

    @torch.no_grad()
    def __call__(self, support: SupportSet, query: Embeddings) -> Tensor:
        """Return the logarithms of class probabilities (T, Q, N).

        Raises
        ------
        InputError
            If the network is not one of Meta-GMVAE.
        """
        network = None if support.heads is None else support.heads.network
        if not isinstance(network, MetaGMVAE):
            raise InputError("rule 'gmvae' needs a run of the method 'meta-gmvae'")
        x_s, x_q = support.embeddings.features, query.features  # (T, S, width), (T, Q, width)
        rows = []
        for t in range(len(x_s)):
            noise = self._noise(support.first + t, network, x_s[t], x_q[t])
            if self.transductive:
                rows.append(self._classify(network, support, t, x_q[t][None], noise)[0])
            else:
                rows.append(self._one_by_one(network, support, t, x_q[t], noise))
        return torch.stack(rows)

    def _noise(self, task: int, network: MetaGMVAE, x_s: Tensor, x_q: Tensor) -> Tensor:
        """Draw the noise (S + 1 or S + Q, samples, d) of a task; queries alone share one."""
        generator = torch.Generator().manual_seed((self.seed << 32) + task)
        items = len(x_s) + (len(x_q) if self.transductive else 1)
        noise = torch.randn(items, self.samples, network.latent, generator=generator)
        return noise.to(x_s)

    def _one_by_one(
        self, network: MetaGMVAE, support: SupportSet, t: int, x_q: Tensor, noise: Tensor
    ) -> Tensor:  # (Q, N)
        at_once = max(1, _ITEMS_AT_ONCE // len(noise))
        parts = torch.split(x_q[:, None], at_once)  # sets with one query each
        return torch.cat([self._classify(network, support, t, p, noise)[:, 0] for p in parts])

    def _classify(
        self, network: MetaGMVAE, support: SupportSet, t: int, x_q: Tensor, noise: Tensor
    ) -> Tensor:
        """Return log-probabilities (B, q, N) of B sets of queries (B, q, width), each set apart."""
        B, q = x_q.shape[:2]
        supports = support.embeddings.features[t].expand(B, -1, -1)  # (B, S, width)
        mean, log_variance = network.posterior_of(torch.cat([supports, x_q], dim=1))
        z = mean[:, :, None] + (0.5 * log_variance).exp()[:, :, None] * noise  # (B, S + q, s, d)
        S = supports.shape[1]
        known, unknown = z[:, :S].flatten(1, 2), z[:, S:].flatten(1, 2)
        labels = support.labels[t].repeat_interleave(self.samples).expand(B, -1)
        r = fit_classes(known, labels, unknown, support.ways, self.steps)
        classes = class_gaussians(known, labels, unknown, r)
        log_p = class_log_densities(unknown, classes).log_softmax(dim=2)  # (B, q·s, N)
        return log_p.view(B, q, self.samples, -1).logsumexp(dim=2)
