"""Section 3.3 of the paper, across domains: the heads are trained on the supports of a task."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from psco.errors import InputError
from psco.evaluation.rules.adapt_together import adapt_together, are_usual
from psco.evaluation.rules.rule import Embeddings, Heads
from psco.evaluation.rules.sgd import LEARNING_RATE, MOMENTUM, WEIGHT_DECAY
from psco.ops.contrast import contrastive_loss
from psco.ops.prototypes import prototypes


@dataclass(frozen=True)
class Adapt:
    """The prototype rule with heads that have adapted to the task; the backbone stays as it is.

    The supports are contrasted with one another, Eq. (1): each as a query h∘g with all of them as
    keys g, itself included, those of its class being the positives. BatchNorm sees the supports
    while it adapts, and afterwards uses the running statistics that have come of it.

    Heads of the usual form adapt for many tasks at once, any others for one task after the other.

    Parameters
    ----------
    steps
        Steps of SGD on all supports of a task.
    """

    steps: int = 50
    transductive: ClassVar[bool] = False
    tasks_at_once: ClassVar[int] = 48

    def __call__(
        self,
        support: Embeddings,
        labels: Tensor,
        query: Embeddings,
        ways: int,
        heads: Heads | None = None,
    ) -> Tensor:
        """Give cosines (T, Q, N).

        Raises
        ------
        InputError
            Without heads that can be trained, or if a task has a single support.
        """
        if heads is None:
            raise InputError("rule 'adapt' needs the heads of a network")
        if not heads.temperature > 0:
            raise InputError(f"temperature must be > 0, not {heads.temperature}")
        if labels.shape[1] < 2:
            raise InputError("rule 'adapt' needs two supports at least, for BatchNorm's sake")
        adapt = adapt_together if are_usual(heads) else adapt_one_by_one
        s, q = adapt(support.features, labels, query.features, heads, self.steps)
        return q @ prototypes(s, labels, ways).mT


def with_adaptation(
    rule: str, options: Mapping[str, Any] | None, steps: int
) -> tuple[str, dict[str, Any]]:
    """Give the rule and its options where ``adapt_steps`` may stand for the rule ``adapt``.

    Parameters
    ----------
    rule, options
        As a person gave them.
    steps
        0 changes nothing; more go with the rules ``prototype`` and ``adapt``.

    Raises
    ------
    InputError
        If steps is no such number, or the rule is another one.
    """
    if not isinstance(steps, (int, np.integer)) or steps < 0:
        raise InputError(f"adapt_steps must be a whole number from 0 on, not {steps!r}")
    if steps == 0:
        return rule, dict(options or {})
    if rule not in ("prototype", "adapt"):
        raise InputError(f"adapt_steps goes with the rule 'adapt', not with {rule!r}")
    return "adapt", {"steps": int(steps), **(options or {})}


def adapt_one_by_one(
    x: Tensor, labels: Tensor, xq: Tensor, heads: Heads, steps: int
) -> tuple[Tensor, Tensor]:
    """Adapt copies of any heads; for parameters and result see `adapt_together`."""
    supports, queries = [], []
    for own, classes, asked in zip(x, labels, xq, strict=True):
        adapted = adapt_heads(own, classes, heads, steps)
        supports.append(project(own, adapted).support)
        queries.append(project(asked, adapted).query)
    return torch.stack(supports), torch.stack(queries)


def adapt_heads(features: Tensor, labels: Tensor, heads: Heads, steps: int) -> Heads:
    """Train copies of heads on the supports of one task.

    Parameters
    ----------
    features, labels
        (S, width) features of the supports and (S,) their classes; S > 1.
    heads
        Left as they are.
    steps
        Steps of SGD on all supports.

    Raises
    ------
    InputError
        If there is a single support, or the heads have no parameters.
    """
    if len(labels) < 2:
        raise InputError("adapting needs two supports at least, for BatchNorm's sake; there is 1")
    # The caller may have turned gradients off, for good in the case of inference mode.
    with torch.inference_mode(False), torch.enable_grad():
        x = features.clone()
        g, h = (copy.deepcopy(head).train() for head in (heads.projector, heads.predictor))
        weights = [p.requires_grad_() for module in (g, h) for p in module.parameters()]
        if not weights:
            raise InputError("rule 'adapt' finds nothing to train: the heads have no parameters")
        velocities = [torch.zeros_like(weight) for weight in weights]
        same = labels[:, None] == labels  # (S, S), the paper's A'
        for _ in range(steps):
            z = g(x)  # (S, d)
            q, k = F.normalize(h(z), dim=1), F.normalize(z, dim=1)
            loss = contrastive_loss(q, k, same, heads.temperature)
            gradients = torch.autograd.grad(loss, weights)
            # SGD in three lines: torch.optim takes longer to import than all steps together.
            with torch.no_grad():
                for weight, velocity, gradient in zip(weights, velocities, gradients, strict=True):
                    velocity.mul_(MOMENTUM).add_(gradient).add_(weight, alpha=WEIGHT_DECAY)
                    weight.sub_(velocity, alpha=LEARNING_RATE)
    return Heads(g.eval(), h.eval(), heads.temperature)


@torch.no_grad()
def project(features: Tensor, heads: Heads) -> Embeddings:
    """Send features (n, width) through heads: points (n,)."""
    z = heads.projector(features)
    query = F.normalize(heads.predictor(z), dim=1)
    return Embeddings(features, F.normalize(z, dim=1), query)
