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
        return _apply(list(self), x)

    def blocks(self) -> list[list[nn.Module]]:
        """Return the layers of each block: convolution, BatchNorm, ReLU and pooling."""
        layers = list(self)[:-1]
        return [layers[first : first + 4] for first in range(0, len(layers), 4)]

    def last_two(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Return the flattened outputs of the last block but one and of the last, (N, d) each."""
        layers = list(self)
        inner = _apply(layers[:-5], x)
        return inner.flatten(1), _apply(layers[-5:], inner)


def _apply(layers: list[Any], x: Tensor) -> Tensor:
    """Return what layers make of x, a block at a time where that is possible."""
    while layers:
        block = layers[:4]
        if len(block) == 4 and can_fuse(x, *block):
            conv, norm, _, pool = block
            x = conv_block(x, conv, norm, pool)
            del layers[:4]
        else:
            x = layers.pop(0)(x)
    return x


class StridedConvNet(nn.Sequential):
    """Four blocks of 3x3 convolution of stride 2, BatchNorm and ReLU, averaged over the last map.

    The network of MAML's Omniglot experiments, a quarter of the work of Conv4.

    Parameters
    ----------
    channels
        Colour channels of the images.
    width
        Filters of each convolution, and number of features.
    """

    def __init__(self, channels: int, width: int) -> None:
        layers: list[nn.Module] = []
        for _ in range(4):
            layers += [
                nn.Conv2d(channels, width, 3, stride=2, padding=1, bias=False),
                nn.BatchNorm2d(width),
                nn.ReLU(inplace=True),
            ]
            channels = width
        super().__init__(*layers)

    def forward(self, x: Tensor) -> Tensor:
        """Return features (N, width) of images (N, C, H, W)."""
        for layer in self:
            x = layer(x)
        return x.mean(dim=(2, 3))


def conv4_strided(channels: int, _image_size: int, width: int = 64) -> StridedConvNet:
    """Return Conv4 with strides instead of pooling: 64 features at any size."""
    return StridedConvNet(channels, width)


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
