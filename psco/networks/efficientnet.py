"""EfficientNet-Lite0: inverted residual blocks without squeeze-and-excitation, with ReLU6.

Parameter names are those of the package ``efficientnet_lite_pytorch``, so that its weights fit.
There is no classification layer: the average over the last map is the output. Convolutions are
padded as in TensorFlow, where the weights were trained: an odd pixel goes to the right and bottom.

Tan and Le, EfficientNet, ICML 2019; the Lite variants are by Liu et al., 2020.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from psco.errors import InputError
from psco.ops.parallel import on_one_core_each

MIN_SIZE = 64  # px; five halvings leave a map of 2 x 2
WIDTH = 1280  # number of features
_EPSILON = 1e-3
_SLICE = 16  # images whose maps stay in the cache of a core


class Stage(NamedTuple):
    """A row of the table of blocks."""

    blocks: int
    kernel: int
    stride: int
    expansion: int
    channels: int


STAGES = (
    Stage(blocks=1, kernel=3, stride=1, expansion=1, channels=16),
    Stage(blocks=2, kernel=3, stride=2, expansion=6, channels=24),
    Stage(blocks=2, kernel=5, stride=2, expansion=6, channels=40),
    Stage(blocks=3, kernel=3, stride=2, expansion=6, channels=80),
    Stage(blocks=3, kernel=5, stride=1, expansion=6, channels=112),
    Stage(blocks=4, kernel=5, stride=2, expansion=6, channels=192),
    Stage(blocks=1, kernel=3, stride=1, expansion=6, channels=320),
)


def efficientnet_lite0(channels: int, image_size: int) -> EfficientNetLite0:
    """Return EfficientNet-Lite0: 1280 features, 3.4 million parameters.

    Raises
    ------
    InputError
        If the images are smaller than 64 px.
    """
    if image_size < MIN_SIZE:
        raise InputError(
            f"efficientnet-lite0 halves the image five times and needs image_size >= {MIN_SIZE}, "
            f"not {image_size}"
        )
    return EfficientNetLite0(channels)


class EfficientNetLite0(nn.Module):
    """The network up to its global average pooling: (B, C, H, W) to (B, 1280).

    Parameters
    ----------
    channels
        Colour channels of the images; those of the published weights are in RGB.
    """

    def __init__(self, channels: int) -> None:
        super().__init__()
        self._conv_stem = _conv(channels, 32, 3, stride=2)
        self._bn0 = _norm(32)
        blocks: list[nn.Module] = []
        width = 32
        for stage in STAGES:
            for number in range(stage.blocks):
                stride = stage.stride if number == 0 else 1
                blocks.append(MBConv(width, stage.channels, stage.kernel, stride, stage.expansion))
                width = stage.channels
        self._blocks = nn.ModuleList(blocks)
        self._conv_head = _conv(width, WIDTH, 1)
        self._bn1 = _norm(WIDTH)
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                nn.init.kaiming_normal_(module.weight, mode="fan_out")

    def forward(self, images: Tensor) -> Tensor:
        """Return the features (B, 1280) of images (B, C, H, W).

        On the CPU, in evaluation mode and without gradients, each core takes a few images at a
        time: the maps of a whole batch do not fit into any cache, and cores that split one
        convolution wait for each other at every layer.
        """
        if self.training or torch.is_grad_enabled() or images.device.type != "cpu":
            return self._pooled(images)
        return torch.cat(on_one_core_each(self._without_gradients, torch.split(images, _SLICE)))

    @torch.no_grad()  # threads do not inherit it
    def _without_gradients(self, images: Tensor) -> Tensor:
        return self._pooled(images)

    def _pooled(self, images: Tensor) -> Tensor:
        x = F.relu6(conv_norm(images, self._conv_stem, self._bn0), inplace=True)
        for block in self._blocks:
            x = block(x)
        x = F.relu6(conv_norm(x, self._conv_head, self._bn1), inplace=True)
        return x.mean(dim=(2, 3))


class MBConv(nn.Module):
    """An inverted residual block: (B, C, H, W) to (B, out, H/stride, W/stride).

    A 1x1 convolution widens the map, a depthwise convolution follows, and another 1x1 convolution
    narrows it again, without a non-linearity.
    """

    def __init__(self, channels: int, out: int, kernel: int, stride: int, expansion: int) -> None:
        super().__init__()
        wide = channels * expansion
        if expansion > 1:
            self._expand_conv = _conv(channels, wide, 1)
            self._bn0 = _norm(wide)
        self._depthwise_conv = _conv(wide, wide, kernel, stride, groups=wide)
        self._bn1 = _norm(wide)
        self._project_conv = _conv(wide, out, 1)
        self._bn2 = _norm(out)
        self._expands = expansion > 1
        self._has_shortcut = stride == 1 and channels == out

    def forward(self, x: Tensor) -> Tensor:
        """Apply the block."""
        y = x
        if self._expands:
            y = F.relu6(conv_norm(y, self._expand_conv, self._bn0), inplace=True)
        y = F.relu6(conv_norm(y, self._depthwise_conv, self._bn1), inplace=True)
        y = conv_norm(y, self._project_conv, self._bn2)
        return y.add_(x) if self._has_shortcut else y


def conv_norm(x: Tensor, conv: nn.Conv2d, norm: nn.BatchNorm2d) -> Tensor:
    """Return norm(conv(x)), with padding that keeps ceil(side / stride) pixels of a side.

    In evaluation mode and without gradients, BatchNorm is folded into the convolution. That takes
    as long as a few images and saves a pass over every map.
    """
    x = _pad(x, conv.kernel_size[0], conv.stride[0])
    if norm.training or torch.is_grad_enabled():
        normed: Tensor = norm(conv(x))
        return normed
    assert norm.running_mean is not None
    assert norm.running_var is not None
    scale = norm.weight * (norm.running_var + norm.eps).rsqrt()  # (out,)
    weight = conv.weight * scale[:, None, None, None]
    bias = norm.bias - norm.running_mean * scale
    return F.conv2d(x, weight, bias, conv.stride, conv.padding, groups=conv.groups)


def _pad(x: Tensor, kernel: int, stride: int) -> Tensor:
    """Pad for a stride of 2; with a stride of 1 the convolution itself pads."""
    if stride == 1:
        return x
    height, width = (max(kernel - stride + -side % stride, 0) for side in x.shape[2:])
    return F.pad(x, (width // 2, width - width // 2, height // 2, height - height // 2))


def _conv(channels: int, out: int, kernel: int, stride: int = 1, groups: int = 1) -> nn.Conv2d:
    padding = kernel // 2 if stride == 1 else 0
    return nn.Conv2d(channels, out, kernel, stride, padding, groups=groups, bias=False)


def _norm(channels: int) -> nn.BatchNorm2d:
    return nn.BatchNorm2d(channels, eps=_EPSILON, momentum=0.01)
