"""Section 3.3 of the paper, across domains: the heads are trained on the supports of a task."""

from __future__ import annotations

import copy
from dataclasses import dataclass
from typing import ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor

from psco.errors import InputError
from psco.methods.psco import contrastive_loss, prototypes
from psco.rules.adapt_together import adapt_together, are_usual
from psco.rules.rule import Heads, Points
from psco.rules.sgd import LEARNING_RATE, MOMENTUM, WEIGHT_DECAY

_TASKS_AT_ONCE = 8  # about 10 MB each for the heads of the paper; more is no faster


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

    def __call__(
        self, support: Points, labels: Tensor, query: Points, ways: int, heads: Heads | None = None
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
        scores = []
        for begin in range(0, len(labels), _TASKS_AT_ONCE):
            part = slice(begin, begin + _TASKS_AT_ONCE)
            s, q = adapt(
                support.features[part], labels[part], query.features[part], heads, self.steps
            )  # (t, S, d), (t, Q, d)
            scores.append(q @ prototypes(s, labels[part], ways).mT)
        return torch.cat(scores)


def adapt_one_by_one(
    x: Tensor, labels: Tensor, xq: Tensor, heads: Heads, steps: int
) -> tuple[Tensor, Tensor]:
    """Adapt copies of any heads; for parameters and result see `adapt_together`."""
    # The caller may have turned gradients off, for good in the case of inference mode.
    with torch.inference_mode(False), torch.enable_grad():
        tasks = zip(x.clone(), labels.clone(), xq.clone(), strict=True)
        s, q = zip(*[_adapt_one(*task, heads, steps) for task in tasks], strict=True)
    return torch.stack(s), torch.stack(q)


def _adapt_one(
    x: Tensor, labels: Tensor, xq: Tensor, heads: Heads, steps: int
) -> tuple[Tensor, Tensor]:
    g, h = copy.deepcopy(heads.projector).train(), copy.deepcopy(heads.predictor).train()
    parameters = [p.requires_grad_() for module in (g, h) for p in module.parameters()]
    if not parameters:
        raise InputError("rule 'adapt' finds nothing to train: the heads have no parameters")
    optimiser = torch.optim.SGD(
        parameters, lr=LEARNING_RATE, momentum=MOMENTUM, weight_decay=WEIGHT_DECAY
    )
    same = labels[:, None] == labels  # (S, S), the paper's A'
    for _ in range(steps):
        z = g(x)  # (S, d)
        q, k = F.normalize(h(z), dim=1), F.normalize(z, dim=1)
        optimiser.zero_grad()
        contrastive_loss(q, k, same, heads.temperature).backward()  # type: ignore[no-untyped-call]
        optimiser.step()
    with torch.no_grad():
        g, h = g.eval(), h.eval()
        return F.normalize(g(x), dim=1), F.normalize(h(g(xq)), dim=1)
