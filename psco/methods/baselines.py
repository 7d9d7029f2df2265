"""What every method has to beat: pixels, a random network, and a network trained for each task."""

from __future__ import annotations

from torch import Tensor, nn

from psco.methods.base import Method


class Floor(Method):
    """A method that does not train at all."""

    kind = "floor"

    def __init__(
        self,
        backbone: nn.Module,
        projector: nn.Module,  # noqa: ARG002
        predictor: nn.Module | None,  # noqa: ARG002
    ) -> None:
        super().__init__(backbone)


class RandomNetwork(Floor):
    """The backbone with its initial weights."""

    title = "Random network"
    rule, transfer_rule = "class-mean", "class-mean"
    summary = "the untrained backbone"


class Scratch(Floor):
    """A fresh backbone and last layer, trained on the supports of each test task alone."""

    title = "Training from scratch"
    rule, transfer_rule, embeds = "scratch", "scratch", False
    summary = "trains a new network on the supports of each task"


class Pixels(Floor):
    """No network: the pixels themselves, less their mean."""

    title = "Raw pixels"
    rule, transfer_rule = "class-mean", "class-mean"
    summary = "the picture itself, less its mean"

    def __init__(
        self,
        backbone: nn.Module,  # noqa: ARG002
        projector: nn.Module,
        predictor: nn.Module | None,
    ) -> None:
        super().__init__(Centred(), projector, predictor)


class Centred(nn.Module):
    """Flattens images and takes the mean off each."""

    def forward(self, x: Tensor) -> Tensor:
        """Give (B, C·H·W) for (B, C, H, W)."""
        x = x.flatten(1)
        return x - x.mean(dim=1, keepdim=True)
