"""ResNet-18 and ResNet-50 with the parameter names of torchvision, so that its weights fit.

The stride of a bottleneck sits in its 3x3 convolution, as in torchvision ("v1.5"). There is no
classification layer: the average over the last map is the output.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

SMALL = 64  # pixels up to which the stem keeps the resolution by default


def resnet18(
    channels: int,
    image_size: int,
    small_stem: bool | None = None,
    checkpointing: bool = False,
    zero_init_residual: bool = False,
) -> ResNet:
    """Return ResNet-18: 512 features, 11.2 million parameters. See `ResNet` for the options."""
    small = _stem(small_stem, image_size)
    return ResNet(BasicBlock, (2, 2, 2, 2), channels, small, checkpointing, zero_init_residual)


def resnet50(
    channels: int,
    image_size: int,
    small_stem: bool | None = None,
    checkpointing: bool = False,
    zero_init_residual: bool = False,
) -> ResNet:
    """Return ResNet-50: 2048 features, 23.5 million parameters. See `ResNet` for the options."""
    small = _stem(small_stem, image_size)
    return ResNet(Bottleneck, (3, 4, 6, 3), channels, small, checkpointing, zero_init_residual)


def _stem(small: bool | None, image_size: int) -> bool:
    return image_size <= SMALL if small is None else small


class BasicBlock(nn.Module):
    """Two 3x3 convolutions beside a shortcut: (B, C, H, W) to (B, width, H/stride, W/stride)."""

    expansion = 1

    def __init__(self, channels: int, width: int, stride: int) -> None:
        super().__init__()
        self.conv1 = _conv(channels, width, 3, stride)
        self.bn1 = nn.BatchNorm2d(width)
        self.conv2 = _conv(width, width, 3)
        self.bn2 = nn.BatchNorm2d(width)
        self.downsample = _shortcut(channels, width, stride)

    @property
    def last_norm(self) -> nn.BatchNorm2d:
        """The BatchNorm before the shortcut is added."""
        return self.bn2

    def forward(self, x: Tensor) -> Tensor:
        """Apply the block."""
        y = F.relu(self.bn1(self.conv1(x)), inplace=True)
        y = self.bn2(self.conv2(y))
        y += x if self.downsample is None else self.downsample(x)
        return F.relu(y, inplace=True)


class Bottleneck(nn.Module):
    """1x1, 3x3 and 1x1 convolutions beside a shortcut: (B, C, H, W) to (B, 4 width, H/s, W/s)."""

    expansion = 4

    def __init__(self, channels: int, width: int, stride: int) -> None:
        super().__init__()
        out = width * self.expansion
        self.conv1 = _conv(channels, width, 1)
        self.bn1 = nn.BatchNorm2d(width)
        self.conv2 = _conv(width, width, 3, stride)
        self.bn2 = nn.BatchNorm2d(width)
        self.conv3 = _conv(width, out, 1)
        self.bn3 = nn.BatchNorm2d(out)
        self.downsample = _shortcut(channels, out, stride)

    @property
    def last_norm(self) -> nn.BatchNorm2d:
        """The BatchNorm before the shortcut is added."""
        return self.bn3

    def forward(self, x: Tensor) -> Tensor:
        """Apply the block."""
        y = F.relu(self.bn1(self.conv1(x)), inplace=True)
        y = F.relu(self.bn2(self.conv2(y)), inplace=True)
        y = self.bn3(self.conv3(y))
        y += x if self.downsample is None else self.downsample(x)
        return F.relu(y, inplace=True)


class ResNet(nn.Module):
    """A residual network up to its global average pooling: (B, C, H, W) to (B, 512 expansion).

    Parameters
    ----------
    block
        What the four stages are made of.
    blocks
        Blocks in each stage; the widths are 64, 128, 256 and 512.
    channels
        Colour channels of the images.
    small_stem
        True: a 3x3 convolution that keeps the resolution, for small images. False: the original
        7x7 convolution of stride 2 and max pooling, which divide the sides by four. In `resnet18`
        and `resnet50`, None means small up to 64 px.
    checkpointing
        Store only the input of each block in the forward pass and recompute the rest in the
        backward pass: about half the activation memory for up to a third more time, with
        bit-identical gradients and running statistics.
    zero_init_residual
        Let the last BatchNorm of every block start with a scale of zero, so that each block is the
        identity at first (Goyal et al., 2017). False: it starts with a scale of one.
    """

    def __init__(
        self,
        block: type[BasicBlock] | type[Bottleneck],
        blocks: tuple[int, int, int, int],
        channels: int,
        small_stem: bool,
        checkpointing: bool = False,
        zero_init_residual: bool = False,
    ) -> None:
        super().__init__()
        self.checkpointing = checkpointing
        self.conv1 = _conv(channels, 64, 3) if small_stem else _conv(channels, 64, 7, 2)
        self.bn1 = nn.BatchNorm2d(64)
        self.maxpool = nn.Identity() if small_stem else nn.MaxPool2d(3, stride=2, padding=1)
        self.layer1 = _stage(block, 64, 64, blocks[0], stride=1)
        self.layer2 = _stage(block, 64 * block.expansion, 128, blocks[1], stride=2)
        self.layer3 = _stage(block, 128 * block.expansion, 256, blocks[2], stride=2)
        self.layer4 = _stage(block, 256 * block.expansion, 512, blocks[3], stride=2)
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")
            elif isinstance(module, (BasicBlock, Bottleneck)) and zero_init_residual:
                nn.init.zeros_(module.last_norm.weight)

    def forward(self, images: Tensor) -> Tensor:
        """Return the features (B, d) of images (B, C, H, W)."""
        x: Tensor = self.maxpool(F.relu(self.bn1(self.conv1(images)), inplace=True))
        for stage in (self.layer1, self.layer2, self.layer3, self.layer4):
            for block in stage:
                x = self._apply_block(block, x)
        return x.mean(dim=(2, 3))

    def _apply_block(self, block: nn.Module, x: Tensor) -> Tensor:
        if not (self.checkpointing and torch.is_grad_enabled()):
            kept: Tensor = block(x)
            return kept

        def contexts() -> tuple[AbstractContextManager[None], AbstractContextManager[None]]:
            return nullcontext(), buffers_left_alone(block)

        y: Tensor = checkpoint(
            block, x, use_reentrant=False, preserve_rng_state=False, context_fn=contexts
        )
        return y


@contextmanager
def buffers_left_alone(block: nn.Module) -> Iterator[None]:
    """Keep BatchNorm from counting a batch again when its block is recomputed.

    Inside the context the layers update copies of their buffers. Switching the updates off would
    not do: what a layer saves for the backward pass depends on them.
    """
    buffers = [(m, n, b) for m in block.modules() for n, b in m.named_buffers(recurse=False)]
    try:
        for module, name, buffer in buffers:
            setattr(module, name, buffer.clone())
        yield
    finally:
        for module, name, buffer in buffers:
            setattr(module, name, buffer)


def _conv(channels: int, out: int, side: int, stride: int = 1) -> nn.Conv2d:
    return nn.Conv2d(channels, out, side, stride, padding=side // 2, bias=False)


def _shortcut(channels: int, out: int, stride: int) -> nn.Sequential | None:
    if stride == 1 and channels == out:
        return None
    return nn.Sequential(_conv(channels, out, 1, stride), nn.BatchNorm2d(out))


def _stage(
    block: type[BasicBlock] | type[Bottleneck], channels: int, width: int, count: int, stride: int
) -> nn.Sequential:
    out = width * block.expansion
    rest = [block(out, width, 1) for _ in range(count - 1)]
    return nn.Sequential(block(channels, width, stride), *rest)
