"""Training a whole network on the supports of a task, for many tasks at once.

A network here is a function of its parameters, which differ from task to task. `torch.func.vmap`
runs the tasks side by side, and gradients pass through the steps where they are needed.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.func import functional_call, grad_and_value

Parameters = dict[str, Tensor]
Statistics = Literal["support", "query"]


class TaskNorm(nn.Module):
    """BatchNorm with the statistics of one task, without running averages.

    Parameters
    ----------
    norm
        The BatchNorm whose scale and shift it takes over.

    Attributes
    ----------
    supports
        Number of rows at the front of a batch that are supports; None for all.
    statistics
        What the other rows, the queries, are normalised with: the statistics of the supports, or
        those of the queries themselves, which makes predictions depend on one another.
    """

    def __init__(self, norm: nn.BatchNorm2d) -> None:
        super().__init__()
        self.weight, self.bias, self.eps = norm.weight, norm.bias, norm.eps
        self.supports: int | None = None
        self.statistics: Statistics = "support"

    def reset_parameters(self) -> None:
        """Set the scale to one and the shift to zero."""
        nn.init.ones_(self.weight)
        nn.init.zeros_(self.bias)

    def forward(self, x: Tensor) -> Tensor:
        """Normalise (S + Q, C, H, W)."""
        n = len(x) if self.supports is None else self.supports
        if n == len(x):
            return self._scale(x, x)
        if self.statistics == "support":
            return self._scale(x, x[:n])
        return torch.cat([self._scale(x[:n], x[:n]), self._scale(x[n:], x[n:])])

    def _scale(self, x: Tensor, sample: Tensor) -> Tensor:
        variance, mean = torch.var_mean(sample, dim=(0, 2, 3), correction=0)  # (C,)
        scale = self.weight * (variance + self.eps).rsqrt()  # (C,)
        shift = self.bias - mean * scale
        return x * scale[:, None, None] + shift[:, None, None]


def with_task_norm(network: nn.Module) -> nn.Module:
    """Replace every BatchNorm2d of a network by a TaskNorm, in place, and return the network.

    In-place ReLUs are switched off: gradients of gradients need what they overwrite.
    """
    for name, layer in network.named_children():
        if isinstance(layer, nn.BatchNorm2d):
            setattr(network, name, TaskNorm(layer))
        elif isinstance(layer, nn.ReLU):
            layer.inplace = False
        else:
            with_task_norm(layer)
    return network


@contextmanager
def _supports_first(network: nn.Module, number: int, statistics: Statistics) -> Iterator[None]:
    norms = [layer for layer in network.modules() if isinstance(layer, TaskNorm)]
    for norm in norms:
        norm.supports, norm.statistics = number, statistics
    try:
        yield
    finally:
        for norm in norms:
            norm.supports = None


def support_loss(
    network: nn.Module, parameters: Parameters, x: Tensor, labels: Tensor, ways: int
) -> Tensor:
    """Return the mean cross-entropy of supports (S, C, H, W), times the number of classes.

    The published inner rates belong to this loss. If the network has more outputs than the task
    has classes, only the first ones are used.
    """
    logits = functional_call(network, parameters, (x,))  # (S, outputs)
    return ways * F.cross_entropy(logits[:, :ways], labels)


def inner_loop(
    network: nn.Module,
    parameters: Parameters,
    fixed: Parameters,
    x: Tensor,
    labels: Tensor,
    ways: int,
    rate: float,
    steps: int,
    first_order: bool = False,
) -> tuple[Parameters, Tensor]:
    """Train on the supports of one task by gradient descent on all supports at once.

    Parameters
    ----------
    network
        Maps images (S, C, H, W) to logits (S, outputs >= ways).
    parameters, fixed
        Trained parameters, and those that stay.
    x, labels
        (S, C, H, W) supports and their classes (S,), below ``ways``.
    rate, steps
        Step size on `support_loss`, and number of steps.
    first_order
        Whether to ignore the gradient through the steps.

    Returns
    -------
    dict, Tensor
        The adapted parameters, and the losses (steps,) before each step.
    """

    def loss(current: Parameters) -> Tensor:
        return support_loss(network, {**fixed, **current}, x, labels, ways)

    losses = []
    for _ in range(steps):
        gradients, value = grad_and_value(loss)(parameters)
        if first_order:
            gradients = {name: g.detach() for name, g in gradients.items()}
        parameters = {name: p - rate * gradients[name] for name, p in parameters.items()}
        losses.append(value.detach())
    return parameters, torch.stack(losses)


def query_logits(
    network: nn.Module,
    parameters: Parameters,
    support: Tensor,
    query: Tensor,
    statistics: Statistics,
) -> Tensor:
    """Return the logits (Q, outputs) of queries (Q, C, H, W), passed together with the supports."""
    with _supports_first(network, len(support), statistics):
        logits: Tensor = functional_call(network, parameters, (torch.cat([support, query]),))
    return logits[len(support) :]
