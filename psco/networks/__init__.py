"""Backbones and heads. Any module that maps images to (B, d) can stand in for a backbone."""

from __future__ import annotations

from collections.abc import Callable

from torch import nn

from psco.networks.convnet import ConvNet, StridedConvNet, conv4, conv4_strided, conv5
from psco.networks.efficientnet import EfficientNetLite0, efficientnet_lite0
from psco.networks.external import PREFIX, timm_backbone
from psco.networks.frozen import FrozenBackbone
from psco.networks.heads import output_width, predictor, projector
from psco.networks.image_format import ImageFormat
from psco.networks.networks import Networks
from psco.networks.resnet import ResNet, resnet18, resnet50
from psco.networks.weights import load_backbone
from psco.registry import Registry


class Backbones(Registry[Callable[..., nn.Module]]):
    """The backbones of the package by name, and those of timm as ``timm:NAME``."""

    def __getitem__(self, name: str) -> Callable[..., nn.Module]:
        if name.startswith(PREFIX):
            return timm_backbone(name.removeprefix(PREFIX))
        return super().__getitem__(name)

    def __contains__(self, name: str) -> bool:
        return name.startswith(PREFIX) or super().__contains__(name)


BACKBONES = Backbones("backbone", plugins="psco.backbones")
BACKBONES.register("conv4")(conv4)
BACKBONES.register("conv4-strided")(conv4_strided)
BACKBONES.register("conv5")(conv5)
BACKBONES.register("efficientnet-lite0")(efficientnet_lite0)
BACKBONES.register("resnet18")(resnet18)
BACKBONES.register("resnet50")(resnet50)

__all__ = [
    "BACKBONES",
    "ConvNet",
    "EfficientNetLite0",
    "FrozenBackbone",
    "ImageFormat",
    "Networks",
    "ResNet",
    "StridedConvNet",
    "conv4",
    "conv4_strided",
    "conv5",
    "efficientnet_lite0",
    "load_backbone",
    "output_width",
    "predictor",
    "projector",
    "resnet18",
    "resnet50",
]
