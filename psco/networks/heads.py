"""The heads g and h on top of a backbone, and how wide the backbone below them is."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from psco.errors import InputError


def projector(width: int, hidden: int = 2048, out: int = 128) -> nn.Sequential:
    """Make the projection head g: a two-layer MLP that ends in BatchNorm without affine map."""
    return nn.Sequential(*_mlp(width, hidden, out), nn.BatchNorm1d(out, affine=False))


def predictor(width: int, hidden: int = 2048) -> nn.Sequential:
    """Make the prediction head h: a two-layer MLP from ``width`` back to ``width``."""
    return nn.Sequential(*_mlp(width, hidden, width))


def _mlp(width: int, hidden: int, out: int) -> list[nn.Module]:
    # BatchNorm follows or the output is normalised: biases would have no effect worth a parameter.
    return [
        nn.Linear(width, hidden, bias=False),
        nn.BatchNorm1d(hidden),
        nn.ReLU(inplace=True),
        nn.Linear(hidden, out, bias=False),
    ]


@torch.no_grad()
def output_width(backbone: nn.Module, channels: int, image_size: int) -> int:
    """Find the number d of features by passing one blank image.

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
    except (RuntimeError, AssertionError) as error:  # timm asserts the size that a model is for
        raise InputError(
            f"the backbone takes no images of {channels} x {image_size} x {image_size}: {error}"
        ) from None
    finally:
        backbone.train(mode)
    if features.ndim != 2:
        raise InputError(f"a backbone must return (B, d), not {tuple(features.shape)} for B = 1")
    return features.shape[1]
