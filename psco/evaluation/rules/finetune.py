"""Rules that train a whole network on the pictures of a task: MAML's, and training from scratch."""

from __future__ import annotations

import copy
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor, nn
from torch.func import vmap

from psco.errors import DivergedError, InputError
from psco.evaluation.rules.rule import Embeddings, Heads
from psco.methods.maml import MAML, split_parameters
from psco.networks import output_width
from psco.ops.inner_loop import Statistics, inner_loop, query_logits, with_task_norm

_IMAGES_AT_ONCE = 512  # in a chunk of tasks that are trained side by side
_TASKS_AT_ONCE = 24  # in a call


@dataclass(frozen=True)
class MamlSteps:
    """Gradient steps on the supports from the learnt weights, then the network's own answer.

    Parameters
    ----------
    steps, rate
        Of the inner loop.
    statistics
        What queries are normalised with, ``support`` or ``query``; see `psco.methods.maml`.
    """

    steps: int = 50
    rate: float = 0.004
    statistics: Statistics = "support"
    needs_pixels: ClassVar[bool] = True
    tasks_at_once: ClassVar[int] = _TASKS_AT_ONCE

    @property
    def transductive(self) -> bool:
        """Whether the queries of a task share statistics."""
        return self.statistics == "query"

    def __call__(
        self,
        support: Embeddings,
        labels: Tensor,
        query: Embeddings,
        ways: int,
        heads: Heads | None = None,
    ) -> Tensor:
        """Give logits (T, Q, N).

        Raises
        ------
        InputError
            If the network was trained for fewer ways, or not by MAML.
        DivergedError
            If the losses of a task stop being finite.
        """
        if heads is None or not isinstance(heads.network, MAML):
            raise InputError("rule 'maml' needs a run of the method 'maml'")
        trained = heads.network.episode.ways
        if trained < ways:
            raise InputError(f"this network was trained for {trained} ways, not for {ways}")
        return _train_and_answer(self, heads.network, support, labels, query, ways, heads)


@dataclass(frozen=True)
class FromScratch:
    """Train a fresh network on the supports of the task alone.

    Initial weights are the same for every task, so that no task depends on its companions.

    Parameters
    ----------
    steps, rate
        Of full-batch gradient descent.
    statistics
        What queries are normalised with, ``support`` or ``query``.
    seed
        Decides the initial weights.
    """

    steps: int = 200
    rate: float = 0.1
    statistics: Statistics = "support"
    seed: int = 0
    needs_pixels: ClassVar[bool] = True
    tasks_at_once: ClassVar[int] = _TASKS_AT_ONCE

    @property
    def transductive(self) -> bool:
        """Whether the queries of a task share statistics."""
        return self.statistics == "query"

    def __call__(
        self,
        support: Embeddings,
        labels: Tensor,
        query: Embeddings,
        ways: int,
        heads: Heads | None = None,
    ) -> Tensor:
        """Give logits (T, Q, N)."""
        if heads is None or heads.network is None:
            raise InputError("rule 'scratch' needs a network to start from: a run folder")
        with torch.random.fork_rng():
            torch.manual_seed(self.seed)
            backbone = copy.deepcopy(heads.network.backbone)
            for layer in backbone.modules():
                if callable(reset := getattr(layer, "reset_parameters", None)):
                    reset()
            channels, size, _ = heads.image_shape
            head = nn.Linear(output_width(backbone, channels, size), ways)
        network = nn.Sequential(with_task_norm(backbone), head).to(support.features)
        return _train_and_answer(self, network, support, labels, query, ways, heads)


def _train_and_answer(
    rule: MamlSteps | FromScratch,
    network: nn.Module,
    support: Embeddings,
    labels: Tensor,
    query: Embeddings,
    ways: int,
    heads: Heads,
) -> Tensor:  # (T, Q, N)
    adapted, fixed = split_parameters(network)

    def one_task(support: Tensor, labels: Tensor, query: Tensor) -> tuple[Tensor, Tensor]:
        reached, losses = inner_loop(
            network, adapted, fixed, support, labels, ways, rule.rate, rule.steps
        )
        everything = {**fixed, **reached}
        return query_logits(network, everything, support, query, rule.statistics)[:, :ways], losses

    x_s = support.features.view(*labels.shape, *heads.image_shape)  # (T, S, C, H, W)
    x_q = query.features.view(*query.features.shape[:2], *heads.image_shape)  # (T, Q, C, H, W)
    together = max(1, _IMAGES_AT_ONCE // (x_s.shape[1] + x_q.shape[1]))
    with torch.no_grad():
        answer, losses = vmap(one_task, chunk_size=together)(x_s, labels, x_q)
    finite = torch.cat([losses, answer.sum(dim=(1, 2))[:, None]], dim=1).isfinite()  # (T, steps+1)
    if not finite.all():
        step = int((~finite).any(dim=0).nonzero()[0])
        raise DivergedError(
            f"training on a task diverges after {step} of {rule.steps} steps with rate "
            f"{rule.rate:g}; give the rule a lower one"
        )
    result: Tensor = answer
    return result
