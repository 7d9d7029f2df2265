"""The mean of the weights over the last part of a run, as the model that the run keeps."""

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

    From step to step, the weights of a network move around a better solution, which their mean is
    closer to. BatchNorm's running statistics belong to the single steps, and their mean does not
    fit the mean network: `recalibrate` measures them again.

    Parameters
    ----------
    method
        The method that is trained; the average is a copy of it.

    Attributes
    ----------
    steps
        How often `add` was called.
    recalibrated
        Whether the BatchNorm statistics are those of the mean weights.
    """

    def __init__(self, method: Method) -> None:
        self._copy = MomentumTwin(method, buffers="own")
        self.steps = 0
        self.recalibrated = False

    @property
    def method(self) -> Method:
        """The copy with the mean weights."""
        method = self._copy.network
        assert isinstance(method, Method)
        return method

    def add(self, method: Method) -> None:
        """Add the weights of one more step to the mean."""
        self.steps += 1
        self._copy.update(method, 1 - 1 / self.steps)  # m = 1 - 1/n makes it a plain mean

    def reset(self) -> None:
        """Forget the steps so far; the next `add` starts a new mean."""
        self.steps = 0
        self.recalibrated = False

    def recalibrate(self, views: Iterable[Tensor]) -> None:
        """Measure the BatchNorm statistics of the mean weights on batches of views (B, C, H, W)."""
        method = self.method
        network = nn.Sequential(method.backbone, method.projector, method.predictor)
        dtype = next(network.parameters()).dtype
        recalibrate_batchnorm(network, (view.to(dtype) for view in views))
        self.recalibrated = True

    def state_dict(self) -> dict[str, Any]:
        """Return everything the next step depends on; before the first `add`, no weights."""
        weights = model_weights(self.method) if self.steps else {}
        # Checkpoints use the name "settled".
        return {"steps": self.steps, "settled": self.recalibrated, "weights": weights}

    def load_state_dict(self, state: dict[str, Any], source: Path) -> None:
        """Load what `state_dict` returned; ``source`` names the file in errors."""
        self.steps = state["steps"]
        self.recalibrated = state["settled"]
        if self.steps:
            load_model_weights(self.method, state["weights"], source)


@torch.no_grad()
def recalibrate_batchnorm(network: nn.Module, batches: Iterable[Tensor]) -> None:
    """Replace the running statistics of every BatchNorm by their mean over some batches.

    Parameters
    ----------
    network
        Any network; it ends in evaluation mode.
    batches
        Inputs, each of at least two samples.
    """
    network.train()
    norms = [
        m
        for m in network.modules()
        if isinstance(m, nn.modules.batchnorm._BatchNorm) and m.training  # not of a frozen part
    ]
    momenta = [norm.momentum for norm in norms]
    for norm in norms:
        norm.reset_running_stats()
    for number, batch in enumerate(batches, start=1):
        for norm in norms:
            norm.momentum = 1 / number  # the plain mean over all batches so far
        network(batch)
    network.eval()
    for norm, momentum in zip(norms, momenta, strict=True):
        norm.momentum = momentum
