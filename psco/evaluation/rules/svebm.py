"""The test of Meta-SVEBM (reconstruction from the abstract): a prior fitted to each task."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor

from psco.errors import InputError
from psco.evaluation.rules.gmvae import Queries
from psco.evaluation.rules.rule import Embeddings, SupportSet
from psco.methods.meta_svebm import MetaSVEBM, energy_loss
from psco.networks.generative.latent_energy import Weights, hidden_layers, score, symbol_logits
from psco.ops.langevin import draw_rows, langevin

_CHAINS = 64  # samples of the prior of a task
_MIN_SPREAD = 1e-6  # of the supports, which may all be the same image


@dataclass(frozen=True)
class SymbolPrior:
    """Fit the symbols of the prior to the supports, and the prior to all images of the task.

    The hidden layers start from the learnt ones. The symbols of training are not the classes of the
    task, so the last layer starts as the nearest-mean classifier of the supports.

    Parameters
    ----------
    steps, rate
        Steps of Adam, and their size.
    langevin_steps, step_size
        Of the dynamics that samples the prior in each step.
    label_weight, information_weight
        Weights of the cross-entropy of the supports, and of the mutual information of all images.
    queries
        ``together``: the prior is fitted to supports and queries. ``alone``: to the supports only,
        so that predictions do not depend on one another.
    seed
        Decides the samples, together with the number of the task.
    """

    steps: int = 50
    rate: float = 0.01
    langevin_steps: int = 20
    step_size: float = 0.4
    label_weight: float = 10.0
    information_weight: float = 1.0
    queries: Queries = "together"
    seed: int = 0
    needs_method: ClassVar[str] = "meta-svebm"
    tasks_at_once: ClassVar[int] = 16

    @property
    def transductive(self) -> bool:
        """Whether the prior is fitted to the queries of a task together."""
        return self.queries == "together"

    def __call__(self, support: SupportSet, query: Embeddings) -> Tensor:
        """Return the logits of the classes (T, Q, N).

        Raises
        ------
        InputError
            If the network is not one of Meta-SVEBM.
        """
        network = None if support.heads is None else support.heads.network
        if not isinstance(network, MetaSVEBM):
            raise InputError("rule 'svebm' needs a run of the method 'meta-svebm'")
        with torch.no_grad():
            known = network.posterior_of(support.embeddings.features)[0]  # (T, S, d)
            unknown = network.posterior_of(query.features)[0]  # (T, Q, d)
        with torch.inference_mode(False), torch.enable_grad():
            weights = self._fit(network, support, known.clone(), unknown.clone())
        with torch.no_grad():
            return symbol_logits(weights, unknown)

    def _fit(
        self, network: MetaSVEBM, support: SupportSet, known: Tensor, unknown: Tensor
    ) -> Weights:
        labels = support.labels.clone()
        members = F.one_hot(labels, support.ways).to(known.dtype)  # (T, S, N)
        z = torch.cat([known, unknown], dim=1) if self.transductive else known
        weights = _starting_weights(network, known, members)
        optimizer = torch.optim.Adam(weights, lr=self.rate)
        generators = [
            torch.Generator().manual_seed((self.seed << 32) + support.first + t)
            for t in range(len(z))
        ]
        for _ in range(self.steps):
            negatives = self._negatives(weights, z, generators)
            prior, information = energy_loss(weights, z, negatives)
            log_p = symbol_logits(weights, known).log_softmax(dim=2)
            entropy = -(members * log_p).sum(dim=2).mean()
            loss = self.label_weight * entropy + prior - self.information_weight * information
            optimizer.zero_grad()
            torch.autograd.backward(len(z) * loss)  # the tasks have weights of their own
            optimizer.step()
        return [w.detach() for w in weights]

    def _negatives(self, weights: Weights, z: Tensor, generators: list[torch.Generator]) -> Tensor:
        """Draw latents (T, chains, d) of the priors; those of a task depend on its number only."""
        start = draw_rows(z.new_empty(len(z), _CHAINS, z.shape[2]), generators)
        fixed = [w.detach() for w in weights]
        steps, size = self.langevin_steps, self.step_size
        return langevin(lambda points: score(fixed, points), start, steps, size, generators)


def _starting_weights(network: MetaSVEBM, known: Tensor, members: Tensor) -> Weights:
    """Return weights to train, of supports (T, S, d) whose classes are given as (T, S, N)."""
    weights = [w.detach().clone() for w in network.energy.weights(len(known))]
    hidden = hidden_layers(weights, known)[1]  # (T, S, hidden)
    means = members.mT @ hidden / members.sum(dim=1)[..., None]  # (T, N, hidden)
    spread = (hidden - hidden.mean(dim=1, keepdim=True)).square().sum(dim=2).mean(dim=1)  # (T,)
    scale = spread.clamp_min(_MIN_SPREAD)[:, None, None].reciprocal()
    weights[4] = scale * means
    weights[5] = -0.5 * scale * means.square().sum(dim=2)[:, None]
    return [w.detach().requires_grad_() for w in weights]
