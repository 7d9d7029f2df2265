"""Backbones and heads. Any module that maps images to (B, d) can stand in for a backbone."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from psco.errors import InputError
from psco.registry import Registry

BACKBONES: Registry[nn.Module] = Registry("backbone")


class ConvNet(nn.Sequential):
    """Blocks of 3x3 convolution, BatchNorm, ReLU and 2x2 max pooling, flattened at the end.

    Parameters
    ----------
    depth
        Number of blocks.
    channels
        Colour channels of the images.
    width
        Filters of each convolution.
    ceil_pooling
        Whether pooling keeps an odd last row and column (28 px: 28-14-7-4-2) or drops it
        (84 px: 84-42-21-10-5-2).
    """

    def __init__(self, depth: int, channels: int, width: int, ceil_pooling: bool) -> None:
        layers: list[nn.Module] = []
        for _ in range(depth):
            layers += [
                nn.Conv2d(channels, width, 3, padding=1, bias=False),
                nn.BatchNorm2d(width),
                nn.ReLU(inplace=True),
                nn.MaxPool2d(2, ceil_mode=ceil_pooling),
            ]
            channels = width
        super().__init__(*layers, nn.Flatten())


def conv4(
    channels: int, image_size: int, width: int = 64, ceil_pooling: bool | None = None
) -> ConvNet:
    """Make Conv4: 64 x 2 x 2 features at 28 px. See ``_conv_net`` for the pooling."""
    return _conv_net(4, channels, image_size, width, ceil_pooling)


def conv5(
    channels: int, image_size: int, width: int = 64, ceil_pooling: bool | None = None
) -> ConvNet:
    """Make Conv5: 64 x 2 x 2 features at 84 px. See ``_conv_net`` for the pooling."""
    return _conv_net(5, channels, image_size, width, ceil_pooling)


BACKBONES.register("conv4", conv4)
BACKBONES.register("conv5", conv5)


def _conv_net(
    depth: int, channels: int, image_size: int, width: int, ceil_pooling: bool | None
) -> ConvNet:
    """Choose ceil pooling, unless told, where floor pooling would end on a single pixel."""
    if image_size < 2**depth:
        raise InputError(
            f"conv{depth} halves the image {depth} times and needs image_size >= {2**depth}, "
            f"not {image_size}"
        )
    if ceil_pooling is None:
        ceil_pooling = image_size < 2 ** (depth + 1)
    return ConvNet(depth, channels, width, ceil_pooling)


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
    except RuntimeError as error:
        raise InputError(
            f"the backbone takes no images of {channels} x {image_size} x {image_size}: {error}"
        ) from None
    finally:
        backbone.train(mode)
    if features.ndim != 2:
        raise InputError(f"a backbone must return (B, d), not {tuple(features.shape)} for B = 1")
    return features.shape[1]
