"""Section 3.3 of the paper, meta-test: prototypes, the rule, and the adaptation of the heads.

`Prototype` is the rule within a domain. `Adapt` is the rule across domains: it first trains copies
of the heads g and h on the supports of each task. `adapt_heads` is that training as the paper
describes it, for one task; ``adapt_together.py`` does the same for many tasks at once.
"""

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
from psco.evaluation.rules.adapt_together import adapt_together, have_standard_form
from psco.evaluation.rules.rule import Embeddings, Heads, SupportSet
from psco.evaluation.rules.sgd import LEARNING_RATE, MOMENTUM, WEIGHT_DECAY
from psco.ops.contrast import contrastive_loss
from psco.ops.prototypes import prototypes


@dataclass(frozen=True)
class Prototype:
    """The nearest prototype: ŷ = argmax_y q·c_y with c_y = Normalize(Σ_s 1[y_s = y] z_s)."""

    transductive: ClassVar[bool] = False

    def __call__(self, support: SupportSet, query: Embeddings) -> Tensor:
        """Return cosines (T, Q, N)."""
        z = support.embeddings.support  # (T, S, d)
        return query.query @ prototypes(z, support.labels, support.ways).mT


@dataclass(frozen=True)
class Adapt:
    """The nearest prototype after the heads have adapted to the supports; f stays frozen.

    Heads of the standard form adapt for many tasks at once, other heads task by task.

    Parameters
    ----------
    steps
        Steps of SGD on all supports of a task.
    """

    steps: int = 50
    transductive: ClassVar[bool] = False
    tasks_at_once: ClassVar[int] = 48

    def __call__(self, support: SupportSet, query: Embeddings) -> Tensor:
        """Return cosines (T, Q, N).

        Raises
        ------
        InputError
            If there are no heads to train, or a task has a single support.
        """
        heads, labels = support.heads, support.labels
        if heads is None:
            raise InputError("rule 'adapt' needs the heads of a network, got bare features")
        if not heads.temperature > 0:
            raise InputError(f"temperature must be > 0, got {heads.temperature}")
        _require_two_supports(labels.shape[1])
        adapt = adapt_together if have_standard_form(heads) else adapt_one_by_one
        x, xq = support.embeddings.features, query.features  # (T, S, width), (T, Q, width)
        z, q = adapt(x, labels, xq, heads, self.steps)  # (T, S, d), (T, Q, d)
        return q @ prototypes(z, labels, support.ways).mT


def adapt_heads(features: Tensor, labels: Tensor, heads: Heads, steps: int) -> Heads:
    """Train copies of the heads on the supports of one task.

    The supports are queries too: each, as Normalize(h∘g), is contrasted by Eq. (1) with all
    supports as Normalize(g), itself included. BatchNorm uses the statistics of the supports during
    training, and the updated running statistics afterwards.

    Parameters
    ----------
    features, labels
        (S, width) features of the supports and (S,) their classes; S > 1.
    heads
        Not changed.
    steps
        Steps of SGD on all supports.

    Raises
    ------
    InputError
        If there is a single support, or the heads have no parameters.
    """
    _require_two_supports(len(labels))
    # The caller may be in no_grad or in inference mode.
    with torch.inference_mode(False), torch.enable_grad():
        x = features.clone()
        g, h = (copy.deepcopy(head).train() for head in (heads.projector, heads.predictor))
        weights = [p.requires_grad_() for module in (g, h) for p in module.parameters()]
        if not weights:
            raise InputError("rule 'adapt' needs heads with parameters; these have none to train")
        velocities = [torch.zeros_like(weight) for weight in weights]
        same = labels[:, None] == labels  # (S, S), the paper's A'
        for _ in range(steps):
            u = g(x)  # (S, d)
            q, z = F.normalize(h(u), dim=1), F.normalize(u, dim=1)
            loss = contrastive_loss(q, z, same, heads.temperature)
            gradients = torch.autograd.grad(loss, weights)
            # SGD written out: importing torch.optim takes longer than all these steps.
            with torch.no_grad():
                for weight, velocity, gradient in zip(weights, velocities, gradients, strict=True):
                    velocity.mul_(MOMENTUM).add_(gradient).add_(weight, alpha=WEIGHT_DECAY)
                    weight.sub_(velocity, alpha=LEARNING_RATE)
    return Heads(g.eval(), h.eval(), heads.temperature)


def adapt_one_by_one(
    x: Tensor, labels: Tensor, xq: Tensor, heads: Heads, steps: int
) -> tuple[Tensor, Tensor]:
    """Adapt heads of any form, task by task; see `adapt_together` for arguments and result."""
    supports, queries = [], []
    for support, classes, query in zip(x, labels, xq, strict=True):
        adapted = adapt_heads(support, classes, heads, steps)
        supports.append(project(support, adapted).support)
        queries.append(project(query, adapted).query)
    return torch.stack(supports), torch.stack(queries)


@torch.no_grad()
def project(features: Tensor, heads: Heads) -> Embeddings:
    """Return the embeddings (n,) of features (n, width) under the given heads."""
    u = heads.projector(features)
    query = F.normalize(heads.predictor(u), dim=1)
    return Embeddings(features, F.normalize(u, dim=1), query)


def resolve_adaptation(
    rule: str, options: Mapping[str, Any] | None, adapt_steps: int
) -> tuple[str, dict[str, Any]]:
    """Return the rule and its options, with ``adapt_steps`` > 0 as a short form of rule ``adapt``.

    Parameters
    ----------
    rule, options
        As given by the user.
    adapt_steps
        0 changes nothing; more are allowed with the rules ``prototype`` and ``adapt``.

    Raises
    ------
    InputError
        If ``adapt_steps`` is not a whole number >= 0, or the rule is another one.
    """
    if not isinstance(adapt_steps, (int, np.integer)) or adapt_steps < 0:
        raise InputError(f"adapt_steps must be a whole number >= 0, got {adapt_steps!r}")
    if adapt_steps == 0:
        return rule, dict(options or {})
    if rule not in ("prototype", "adapt"):
        raise InputError(f"adapt_steps requires the rule 'adapt', got {rule!r}")
    return "adapt", {"steps": int(adapt_steps), **(options or {})}


def _require_two_supports(number: int) -> None:
    if number < 2:
        raise InputError(
            f"rule 'adapt' needs at least 2 supports in a task (BatchNorm), got {number}"
        )
