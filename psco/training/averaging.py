"""The mean of the weights over the last part of a run, as the model that is kept of it."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from psco.methods import Method
from psco.methods.momentum import MomentumTwin
from psco.training.checkpoint import load_model_weights, model_weights


class WeightAverage:
    """The running mean of a method's weights.

    The weights of a network jump from step to step around a better one, which their mean comes
    close to. BatchNorm's running statistics are those of other weights, and their mean is not what
    the mean network needs: `settle` measures them anew.

    Parameters
    ----------
    method
        The method that is trained; the average is a copy of it.

    Attributes
    ----------
    steps
        How many times `add` was called.
    settled
        Whether the statistics are those of the mean weights.
    """

    def __init__(self, method: Method) -> None:
        self._twin = MomentumTwin(method, buffers="own")
        self.steps, self.settled = 0, False

    @property
    def method(self) -> Method:
        """The copy that has the mean weights."""
        method = self._twin.network
        assert isinstance(method, Method)
        return method

    def add(self, method: Method) -> None:
        """Take the weights of one more step into the mean."""
        self.steps += 1
        self._twin.update(method, 1 - 1 / self.steps)  # m = 1 - 1/n makes it a plain mean

    def settle(self, views: Iterable[Tensor]) -> None:
        """Measure BatchNorm's statistics of the mean weights on batches of views (B, C, H, W)."""
        method = self.method
        network = nn.Sequential(method.backbone, method.projector, method.predictor)
        dtype = next(network.parameters()).dtype
        measure_norms(network, (view.to(dtype) for view in views))
        self.settled = True

    def state_dict(self) -> dict[str, Any]:
        """Give all that the next step depends on; no weights before the first `add`."""
        weights = model_weights(self.method) if self.steps else {}
        return {"steps": self.steps, "settled": self.settled, "weights": weights}

    def load_state_dict(self, state: dict[str, Any], source: Path) -> None:
        """Take what `state_dict` gave; ``source`` names the file in errors."""
        self.steps, self.settled = state["steps"], state["settled"]
        if self.steps:
            load_model_weights(self.method, state["weights"], source)


@torch.no_grad()
def measure_norms(network: nn.Module, batches: Iterable[Tensor]) -> None:
    """Replace the running statistics of every BatchNorm by their mean over some batches.

    Parameters
    ----------
    network
        Any network; it ends in evaluation mode.
    batches
        Inputs, each of at least two samples.
    """
    norms = [m for m in network.modules() if isinstance(m, nn.modules.batchnorm._BatchNorm)]
    usual = [norm.momentum for norm in norms]
    for norm in norms:
        norm.reset_running_stats()
    network.train()
    for number, batch in enumerate(batches, start=1):
        for norm in norms:
            norm.momentum = 1 / number  # the plain mean over all batches so far
        network(batch)
    network.eval()
    for norm, momentum in zip(norms, usual, strict=True):
        norm.momentum = momentum
