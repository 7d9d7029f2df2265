"""The small backbones of the paper: Conv4 for Omniglot, Conv5 for miniImageNet."""

from __future__ import annotations

from typing import Any

from torch import Tensor, nn

from psco.errors import InputError
from psco.ops.conv_block import can_fuse, conv_block


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

    def forward(self, x: Tensor) -> Tensor:
        """Return features (N, d) of images (N, C, H, W)."""
        layers: list[Any] = list(self)
        while layers:
            block = layers[:4]
            if len(block) == 4 and can_fuse(x, *block):
                conv, norm, _, pool = block
                x = conv_block(x, conv, norm, pool)
                del layers[:4]
            else:
                x = layers.pop(0)(x)
        return x


def conv4(
    channels: int, image_size: int, width: int = 64, ceil_pooling: bool | None = None
) -> ConvNet:
    """Return Conv4: 64 x 2 x 2 features at 28 px. See ``_conv_net`` for the pooling."""
    return _conv_net(4, channels, image_size, width, ceil_pooling)


def conv5(
    channels: int, image_size: int, width: int = 64, ceil_pooling: bool | None = None
) -> ConvNet:
    """Return Conv5: 64 x 2 x 2 features at 84 px. See ``_conv_net`` for the pooling."""
    return _conv_net(5, channels, image_size, width, ceil_pooling)


def _conv_net(
    depth: int, channels: int, image_size: int, width: int, ceil_pooling: bool | None
) -> ConvNet:
    """Return a ConvNet, by default with ceil pooling where floor pooling ends on a single pixel."""
    if image_size < 2**depth:
        raise InputError(
            f"conv{depth} halves the image {depth} times and needs image_size >= {2**depth}, "
            f"got {image_size}"
        )
    if ceil_pooling is None:
        ceil_pooling = image_size < 2 ** (depth + 1)
    return ConvNet(depth, channels, width, ceil_pooling)
