"""MAML: learn weights from which a few steps fit a task (Finn, Abbeel and Levine, ICML 2017)."""

from __future__ import annotations

from typing import Any, ClassVar, Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.func import vmap

from psco.errors import DivergedError
from psco.methods.base import (
    EPISODIC_SETTINGS,
    METHODS,
    Batch,
    Episode,
    Kind,
    Logs,
    Method,
    require_positive,
)
from psco.networks.networks import Networks
from psco.ops.inner_loop import (
    Parameters,
    Statistics,
    TaskNorm,
    inner_loop,
    query_logits,
    with_task_norm,
)


@METHODS.register("maml")
class MAML(Method):
    """Train through the training: the loss is that of the queries after steps on the supports.

    Scale and shift of the normalisation are learnt over tasks, and not by the steps inside one,
    as in the published code. The rate belongs to a loss that is ways times the mean cross-entropy.

    Parameters
    ----------
    networks
        f, whose BatchNorm layers become `TaskNorm`; the heads are not used.
    ways, shots, queries
        N, K and Q of a training task; a test task can have no more ways.
    tasks
        Tasks in a step; None for as many as fit into the batch.
    inner_rate, inner_steps, test_steps
        Step size, and number of steps in training and at test time. The published rate, 0.05, is
        for a network that averages its last feature maps. On Conv4, whose features are the maps
        themselves, it overshoots and hardly learns. Of the rates tried on Omniglot's training
        classes, 0.002 and 0.004 were the best. On Conv5 and miniImageNet 0.01 works, see the recipe
        ``miniimagenet-maml``.
    first_order
        Whether to ignore the gradient through the steps (FOMAML).
    statistics
        What queries are normalised with: ``support``, or ``query``, the whole query set of a task,
        which makes the method transductive.
    """

    title, has_features = "MAML", False
    kind: ClassVar[Kind] = "supervised"
    views: ClassVar[Literal[1, 2]] = 1
    rule, transfer_rule = "maml", "maml"
    distributes = False
    protocol = "inductive; transductive with statistics=query"
    paper = "Finn, Abbeel and Levine, ICML 2017"
    summary = "learns from labelled tasks the weights from which a few gradient steps fit a new one"
    settings: ClassVar = EPISODIC_SETTINGS
    episode: Episode

    def __init__(
        self,
        networks: Networks,
        ways: int = 20,
        shots: int = 1,
        queries: int = 5,
        tasks: int | None = None,
        inner_rate: float = 0.004,
        inner_steps: int = 5,
        test_steps: int = 50,
        first_order: bool = False,
        statistics: Statistics = "support",
    ) -> None:
        networks = networks.without_heads()
        with_task_norm(networks.backbone)
        super().__init__(networks)
        require_positive(inner_rate=inner_rate, inner_steps=inner_steps, test_steps=test_steps)
        self.classifier = nn.Linear(self.width, ways)
        self.episode = Episode(ways, shots, queries, 1 if tasks is None else tasks)
        self._fills_batch = tasks is None
        self.inner_rate = inner_rate
        self.inner_steps = inner_steps
        self.test_steps = test_steps
        self.first_order = first_order
        self.statistics = statistics

    @property
    def most_ways(self) -> int:
        """The ways it was trained for: it has no more outputs."""
        return self.episode.ways

    def set_batch_size(self, batch_size: int) -> None:
        """Take as many tasks as fit into the batch, unless their number was given."""
        e = self.episode
        if self._fills_batch:
            per_task = e.ways * (e.shots + e.queries)
            self.episode = Episode(e.ways, e.shots, e.queries, max(1, batch_size // per_task))

    def forward(self, x: Tensor) -> Tensor:
        """Return logits (B, ways) for images (B, C, H, W)."""
        logits: Tensor = self.classifier(self.backbone(x))
        return logits

    def loss(self, batch: Batch) -> tuple[Tensor, Logs]:
        """Return the mean loss of the queries after adaptation, over the tasks of a step.

        Raises
        ------
        DivergedError
            If the loss of a task stops being finite.
        """
        e = self.episode
        support, query = (part.flatten(1, 2) for part in e.split(batch.view_a))  # (T, NK, C, H, W)
        classes = torch.arange(e.ways, device=support.device)
        y_s, y_q = classes.repeat_interleave(e.shots), classes.repeat_interleave(e.queries)
        adapted, fixed = split_parameters(self)

        def one_task(support: Tensor, query: Tensor) -> tuple[Tensor, Tensor, Tensor]:
            reached, on_the_way = inner_loop(
                self,
                adapted,
                fixed,
                support,
                y_s,
                e.ways,
                self.inner_rate,
                self.inner_steps,
                self.first_order,
            )
            everything = {**fixed, **reached}
            logits = query_logits(self, everything, support, query, self.statistics)  # (NQ, N)
            right = (logits.argmax(dim=1) == y_q).to(logits.dtype).mean()
            return F.cross_entropy(logits, y_q), right.detach(), on_the_way

        losses, right, on_the_way = vmap(one_task)(support, query)  # (T,), (T,), (T, steps)
        self._check(torch.cat([on_the_way, losses.detach()[:, None]], dim=1))
        return losses.mean(), {"accuracy": right.mean()}

    def rule_options(self) -> dict[str, Any]:
        """Return the settings it was trained with."""
        return {
            "steps": self.test_steps,
            "rate": self.inner_rate,
            "statistics": self.statistics,
        }

    def _check(self, losses: Tensor) -> None:  # (T, steps + 1)
        bad = (~losses.isfinite()).nonzero()
        if len(bad):
            task, step = bad[0].tolist()
            raise DivergedError(
                f"the inner loop diverges: task {task + 1} of {len(losses)} after {step} of "
                f"{self.inner_steps} steps with method.inner_rate {self.inner_rate:g}; "
                f"try a lower one"
            )


def split_parameters(network: nn.Module) -> tuple[Parameters, Parameters]:
    """Return the parameters that a task adapts, and those of the normalisation, which stay."""
    norms = {
        f"{place}.{name}"
        for place, layer in network.named_modules()
        if isinstance(layer, TaskNorm)
        for name, _ in layer.named_parameters()
    }
    everything: Parameters = {**dict(network.named_parameters())}
    adapted = {name: p for name, p in everything.items() if name not in norms}
    return adapted, {name: p for name, p in everything.items() if name in norms}
