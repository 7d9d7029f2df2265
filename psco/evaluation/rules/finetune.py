"""Rules that train the whole network on the images of each task: MAML and training from scratch."""

from __future__ import annotations

import copy
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor, nn
from torch.func import vmap

from psco.errors import DivergedError, InputError
from psco.evaluation.rules.rule import Embeddings, SupportSet
from psco.methods.maml import MAML, split_parameters
from psco.networks import output_width
from psco.ops.inner_loop import Statistics, inner_loop, query_logits, with_task_norm

_IMAGES_AT_ONCE = 512  # of the tasks that are trained side by side
_TASKS_AT_ONCE = 24  # in one call of the rule


@dataclass(frozen=True)
class MamlSteps:
    """MAML's inner loop: gradient steps on the supports from the learnt weights, then predict.

    Parameters
    ----------
    steps, rate
        Number of steps and learning rate of the inner loop.
    statistics
        The images whose BatchNorm statistics normalise the queries, ``support`` or ``query``; see
        `psco.methods.maml`.
    """

    steps: int = 50
    rate: float = 0.004
    statistics: Statistics = "support"
    needs_pixels: ClassVar[bool] = True
    tasks_at_once: ClassVar[int] = _TASKS_AT_ONCE

    @property
    def transductive(self) -> bool:
        """Whether queries are normalised with the statistics of all queries of their task."""
        return self.statistics == "query"

    def __call__(self, support: SupportSet, query: Embeddings) -> Tensor:
        """Return logits (T, Q, N).

        Raises
        ------
        InputError
            If the network was trained for fewer ways, or not by MAML.
        DivergedError
            If the loss of a task is no longer finite.
        """
        network = None if support.heads is None else support.heads.network
        if not isinstance(network, MAML):
            raise InputError("rule 'maml' needs a run of the method 'maml'")
        if network.episode.ways < support.ways:
            raise InputError(
                f"this network was trained for {network.episode.ways} ways and cannot do "
                f"{support.ways}; evaluate it with fewer ways"
            )
        return _train_and_predict(self, network, support, query)


@dataclass(frozen=True)
class FromScratch:
    """Train a new network on the supports of each task alone.

    The initial weights are the same for every task.

    Parameters
    ----------
    steps, rate
        Number of steps and learning rate of full-batch gradient descent.
    statistics
        The images whose BatchNorm statistics normalise the queries, ``support`` or ``query``.
    seed
        Decides the initial weights.
    """

    steps: int = 200
    rate: float = 0.01
    statistics: Statistics = "support"
    seed: int = 0
    needs_pixels: ClassVar[bool] = True
    tasks_at_once: ClassVar[int] = _TASKS_AT_ONCE

    @property
    def transductive(self) -> bool:
        """Whether queries are normalised with the statistics of all queries of their task."""
        return self.statistics == "query"

    def __call__(self, support: SupportSet, query: Embeddings) -> Tensor:
        """Return logits (T, Q, N)."""
        heads = support.heads
        if heads is None or heads.network is None:
            raise InputError("rule 'scratch' needs a run folder, for the architecture to train")
        with torch.random.fork_rng():
            torch.manual_seed(self.seed)
            backbone = copy.deepcopy(heads.network.backbone)
            for layer in backbone.modules():
                if callable(reset := getattr(layer, "reset_parameters", None)):
                    reset()
            channels, size, _ = heads.image_shape
            head = nn.Linear(output_width(backbone, channels, size), support.ways)
        network = nn.Sequential(with_task_norm(backbone), head).to(support.embeddings.features)
        return _train_and_predict(self, network, support, query)


def _train_and_predict(
    rule: MamlSteps | FromScratch, network: nn.Module, support: SupportSet, query: Embeddings
) -> Tensor:  # (T, Q, N)
    assert support.heads is not None
    ways, shape = support.ways, support.heads.image_shape
    adapted, fixed = split_parameters(network)

    def one_task(x_s: Tensor, labels: Tensor, x_q: Tensor) -> tuple[Tensor, Tensor]:
        reached, losses = inner_loop(
            network, adapted, fixed, x_s, labels, ways, rule.rate, rule.steps
        )
        logits = query_logits(network, {**fixed, **reached}, x_s, x_q, rule.statistics)
        return logits[:, :ways], losses

    x_s = _images(support.embeddings.features, shape)  # (T, S, C, H, W)
    x_q = _images(query.features, shape)  # (T, Q, C, H, W)
    together = max(1, _IMAGES_AT_ONCE // (x_s.shape[1] + x_q.shape[1]))
    with torch.no_grad():
        logits, losses = vmap(one_task, chunk_size=together)(x_s, support.labels, x_q)
    finite = torch.cat([losses, logits.sum(dim=(1, 2))[:, None]], dim=1).isfinite()  # (T, steps+1)
    if not finite.all():
        step = int((~finite).any(dim=0).nonzero()[0])
        raise DivergedError(
            f"training on a task diverges after {step} of {rule.steps} steps with rate "
            f"{rule.rate:g}; lower the rule's option rate"
        )
    result: Tensor = logits
    return result


def _images(pixels: Tensor, shape: tuple[int, int, int]) -> Tensor:  # (T, n, C·H·W)
    return pixels.view(*pixels.shape[:2], *shape)  # (T, n, C, H, W)
