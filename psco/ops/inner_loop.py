"""Training a whole network on the supports of a task, for many tasks at once.

A network here is a function of its parameters: tasks differ in the parameters they have reached,
`torch.func.vmap` runs them side by side, and gradients pass through the steps where they must.
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
    """BatchNorm with the statistics of one task, and no memory of others.

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
        those of the queries themselves, by which predictions come to depend on one another.
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
    """Replace every BatchNorm2d by a TaskNorm, and let nothing work in place; changes the network.

    Gradients of gradients need what in-place layers overwrite.
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
    """Give the cross-entropy of supports (S, C, H, W), the mean times the number of classes.

    That is the loss to which the published rates of inner loops belong. Of a network with more
    outputs than the task has classes only the first ones take part.
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
        Those that are trained, and those that are not.
    x, labels
        (S, C, H, W) supports and their classes (S,), below ``ways``.
    rate, steps
        Step size on `support_loss`, and number of steps.
    first_order
        Whether gradients through the adapted parameters ignore how the steps were found.

    Returns
    -------
    dict, Tensor
        The adapted parameters, and the losses (steps,) on the way.
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
    """Give the logits (Q, outputs) of queries (Q, C, H, W); the supports pass with them."""
    with _supports_first(network, len(support), statistics):
        logits: Tensor = functional_call(network, parameters, (torch.cat([support, query]),))
    return logits[len(support) :]
