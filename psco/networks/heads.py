"""The heads g and h on top of a backbone, and the width of the backbone."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from psco.errors import InputError
from psco.ops.mlp import can_fuse_mlp, fused_mlp


class Head(nn.Sequential):
    """A linear layer, BatchNorm, ReLU, a linear layer, and perhaps more.

    In training the first four run as one operation where possible.
    """

    def forward(self, x: Tensor) -> Tensor:
        """Map (N, width) to (N, out)."""
        layers = list(self)
        if can_fuse_mlp(x, layers[:4]):
            x, layers = fused_mlp(x, *layers[:4]), layers[4:]
        for layer in layers:
            x = layer(x)
        return x


def projector(width: int, hidden: int = 2048, out: int = 128) -> Head:
    """Return the projection head g: a two-layer MLP that ends in BatchNorm without affine map."""
    return Head(*_mlp(width, hidden, out), nn.BatchNorm1d(out, affine=False))


def predictor(width: int, hidden: int = 2048) -> Head:
    """Return the prediction head h: a two-layer MLP from ``width`` back to ``width``."""
    return Head(*_mlp(width, hidden, width))


def _mlp(width: int, hidden: int, out: int) -> list[nn.Module]:
    # No biases: BatchNorm follows, or the output is normalised.
    return [
        nn.Linear(width, hidden, bias=False),
        nn.BatchNorm1d(hidden),
        nn.ReLU(inplace=True),
        nn.Linear(hidden, out, bias=False),
    ]


@torch.no_grad()
def output_width(backbone: nn.Module, channels: int, image_size: int) -> int:
    """Return the number d of features, found by passing one blank image.

    Raises
    ------
    InputError
        If the backbone does not return (1, d) for an image of this shape.
    """
    mode = backbone.training
    like = next(backbone.parameters(), torch.empty(0))
    blank = torch.zeros(1, channels, image_size, image_size, device=like.device, dtype=like.dtype)
    try:
        features: Tensor = backbone.eval()(blank)
    except (RuntimeError, AssertionError) as error:  # timm asserts the image size of a model
        shape = f"{channels} x {image_size} x {image_size}"
        raise InputError(f"the backbone does not accept images of {shape}: {error}") from None
    finally:
        backbone.train(mode)
    if features.ndim != 2:
        raise InputError(f"a backbone must return (B, d), got {tuple(features.shape)} for B = 1")
    return features.shape[1]
