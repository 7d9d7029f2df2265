"""Synthetic few-shot tasks to time the rules with, and loops over single tasks to compare with."""

from __future__ import annotations

import copy

import torch
import torch.nn.functional as F
from torch import Tensor

from psco.evaluation.rules import RULES, Embeddings, Heads, SupportSet
from psco.evaluation.rules.prototype import project
from psco.evaluation.rules.sgd import LEARNING_RATE, MOMENTUM, WEIGHT_DECAY
from psco.networks import predictor, projector
from psco.ops.contrast import contrastive_loss
from psco.ops.prototypes import prototypes

Task = tuple[Embeddings, Tensor, Embeddings, int]  # supports, their labels, queries, ways


def make_heads(width: int, hidden: int, out: int) -> Heads:
    """Return untrained heads whose BatchNorm statistics come from synthetic features."""
    torch.manual_seed(0)
    g, h = projector(width, hidden, out), predictor(out, hidden)
    with torch.no_grad():
        for _ in range(30):
            h(g(torch.randn(256, width).relu()))
    return Heads(g.eval(), h.eval(), 1.0)


def make_tasks(
    heads: Heads, tasks: int, ways: int = 5, shots: int = 5, queries: int = 15, width: int = 256
) -> tuple[Task, Tensor]:
    """Draw tasks of Gaussian clusters, rectified like the features of a backbone.

    Parameters
    ----------
    heads
        Map features (width,) to embeddings.
    tasks, ways, shots, queries
        T, N, K, and Q of each class.
    width
        Number of features.

    Returns
    -------
    tuple
        The tasks, and the true classes (T, NQ) of their queries.
    """
    generator = torch.Generator().manual_seed(1)
    centres = torch.randn(tasks, ways, width, generator=generator)
    labels = torch.arange(ways).repeat_interleave(shots).expand(tasks, -1)
    truth = torch.arange(ways).repeat_interleave(queries).expand(tasks, -1)

    def sample(y: Tensor) -> Embeddings:
        noise = torch.randn(*y.shape, width, generator=generator)
        x = (0.3 * centres.gather(1, y[..., None].expand(-1, -1, width)) + noise).relu()
        with torch.no_grad():
            u = heads.projector(x.flatten(0, 1))
            v = heads.predictor(u)
        shape = (*y.shape, -1)
        return Embeddings(x, F.normalize(u, dim=1).view(shape), F.normalize(v, dim=1).view(shape))

    return (sample(labels), labels, sample(truth), ways), truth


def first_tasks(task: Task, number: int) -> Task:
    """Return the first tasks."""
    support, labels, query, ways = task
    chosen = torch.arange(min(number, len(labels)))
    return support[chosen], labels[chosen], query[chosen], ways


def score(name: str, task: Task, heads: Heads) -> Tensor:
    """Apply a rule with its default options to all tasks at once: scores (T, Q, N)."""
    support, labels, query, ways = task
    return RULES[name]()(SupportSet(support, labels, ways, heads), query)


def prototype_loop(task: Task, heads: Heads) -> Tensor:
    """Apply the rule `prototype` to one task after the other and return scores (T, Q, N)."""
    support, labels, query, ways = task
    scores = []
    for number in range(len(labels)):
        one = torch.tensor([number])
        scores.append(score("prototype", (support[one], labels[one], query[one], ways), heads))
    return torch.cat(scores)


def adapt_loop(task: Task, heads: Heads, steps: int = 50) -> Tensor:
    """Adapt a copy of the heads, with a fresh optimiser, to one task after the other.

    Parameters
    ----------
    task
        T tasks.
    heads
        Not changed.
    steps
        Steps of SGD on all supports of a task.

    Returns
    -------
    Tensor
        Scores (T, Q, N), those of the rule `adapt` up to rounding.
    """
    support, labels, query, ways = task
    scores = []
    for x, y, xq in zip(support.features, labels, query.features, strict=True):
        adapted = _adapt(x, y, heads, steps)
        centres = prototypes(project(x, adapted).support, y, ways)  # (N, d)
        scores.append(project(xq, adapted).query @ centres.T)
    return torch.stack(scores)


def _adapt(x: Tensor, labels: Tensor, heads: Heads, steps: int) -> Heads:
    g, h = (copy.deepcopy(head).train() for head in (heads.projector, heads.predictor))
    weights = [*g.parameters(), *h.parameters()]
    optimiser = torch.optim.SGD(
        weights, lr=LEARNING_RATE, momentum=MOMENTUM, weight_decay=WEIGHT_DECAY
    )
    same = labels[:, None] == labels  # (S, S)
    for _ in range(steps):
        z = g(x)
        q, k = F.normalize(h(z), dim=1), F.normalize(z, dim=1)
        optimiser.zero_grad()
        contrastive_loss(q, k, same, heads.temperature).backward()  # type: ignore[no-untyped-call]
        optimiser.step()
    return Heads(g.eval(), h.eval(), heads.temperature)
