"""SGD in one pass over all weights, their gradients and their momenta."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor, nn

from psco.ops.native import sgd_step, suits_sgd


class Sgd(torch.optim.SGD):
    """SGD with momentum and weight decay as torch has it, with the same state.

    Torch's own step, a pass over each tensor, is taken where the kernel cannot: the first step,
    which makes the momenta, other devices and number formats.
    """

    def __init__(
        self, parameters: Iterable[nn.Parameter], lr: float, momentum: float, weight_decay: float
    ) -> None:
        super().__init__(parameters, lr, momentum, weight_decay=weight_decay, fused=True)

    def step(self, closure: Callable[[], float] | None = None) -> Any:
        """Take a step on the gradients that there are."""
        groups = [self._tensors(group["params"]) for group in self.param_groups]
        if closure is not None or not all(suits_sgd(*tensors) for tensors in groups):
            return super().step(closure)
        for group, tensors in zip(self.param_groups, groups, strict=True):
            sgd_step(*tensors, group["lr"], group["momentum"], group["weight_decay"])
        return None

    def _tensors(self, parameters: list[Tensor]) -> tuple[list[Tensor], list[Tensor], list[Tensor]]:
        """Give weights, gradients and those momenta that there are."""
        weights = [weight for weight in parameters if weight.grad is not None]
        momenta = [self.state[weight].get("momentum_buffer") for weight in weights]
        known = [momentum for momentum in momenta if momentum is not None]
        return weights, [weight.grad for weight in weights if weight.grad is not None], known
