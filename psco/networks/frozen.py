"""A backbone that is not trained, for training heads on its features."""

from __future__ import annotations

import torch
from torch import Tensor, nn


class FrozenBackbone(nn.Module):
    """A backbone without gradients, whose features are centred on the mean of the training images.

    It also accepts its own features, (B, width), and returns them: training computes the features
    of every image once and then passes these to the method in place of images.

    Parameters
    ----------
    network
        The backbone; it stays in evaluation mode.
    width
        Number of its features.

    Attributes
    ----------
    centre
        (width,) subtracted from the features; zero until it is set.
    """

    centre: Tensor

    def __init__(self, network: nn.Module, width: int) -> None:
        super().__init__()
        self.network = network.requires_grad_(False)
        self.register_buffer("centre", torch.zeros(width))
        self.network.eval()

    def forward(self, x: Tensor) -> Tensor:
        """Return centred features (B, width) of images (B, C, H, W), or the features given."""
        if x.ndim == 2:
            return x
        features: Tensor = self.network(x)
        return features - self.centre

    def train(self, mode: bool = True) -> FrozenBackbone:
        """Set the mode; the network itself stays in evaluation mode."""
        super().train(mode)
        self.network.eval()
        return self
