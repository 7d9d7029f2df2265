"""What every method has to beat: pixels, a random network, and a network trained for each task."""

from __future__ import annotations

from typing import Any, ClassVar

from torch import Tensor, nn

from psco.methods.base import METHODS, Method, require_positive
from psco.networks.networks import Networks


class Baseline(Method):
    """A method that does not train at all."""

    kind = "baseline"
    settings: ClassVar = {"train": {"freeze": None}}

    def __init__(self, networks: Networks) -> None:
        super().__init__(networks.without_heads())


@METHODS.register("random")
class RandomNetwork(Baseline):
    """The backbone with its initial weights."""

    title = "Random network"
    settings: ClassVar = {"init": None, "train": {"freeze": None}}
    rule, transfer_rule = "class-mean", "class-mean"
    summary = "the untrained backbone"


@METHODS.register("scratch")
class Scratch(Baseline):
    """A fresh backbone and last layer, trained on the supports of each test task alone.

    Parameters
    ----------
    networks
        The backbone to train; its weights are not used.
    rate, steps
        Learning rate on ways times the mean cross-entropy, and steps on all supports. The rate was
        chosen on validation tasks, see results/miniimagenet/inner-rates.md.
    """

    title = "Training from scratch"
    rule, transfer_rule, has_features = "scratch", "scratch", False
    summary = "trains a new network on the supports of each task"

    def __init__(self, networks: Networks, rate: float = 0.01, steps: int = 200) -> None:
        super().__init__(networks)
        require_positive(rate=rate, steps=steps)
        self.rate = rate
        self.steps = steps

    def rule_options(self) -> dict[str, Any]:
        """Return rate and steps, so that every test of a run takes the same."""
        return {"rate": self.rate, "steps": self.steps}


@METHODS.register("pixels")
class Pixels(Baseline):
    """No network: the pixels themselves, less their mean."""

    title = "Raw pixels"
    rule, transfer_rule = "class-mean", "class-mean"
    summary = "the picture itself, less its mean"

    def __init__(self, networks: Networks) -> None:  # the backbone gives way to the pixels
        super().__init__(Networks(CentredPixels(), networks.projector))


class CentredPixels(nn.Module):
    """Flattens images and subtracts the mean of each."""

    def forward(self, x: Tensor) -> Tensor:
        """Return (B, C·H·W) for (B, C, H, W)."""
        x = x.flatten(1)
        return x - x.mean(dim=1, keepdim=True)
