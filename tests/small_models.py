"""Encoders that are quick to build and to export, and drawings for them."""

from __future__ import annotations

import numpy as np
import torch
from torch import nn

from psco.evaluation.embed import Encoder
from psco.recipes.recipe import load_recipe

TINY = [
    "image={size: 16, source_size: 24, channels: 1, mean: [0.5], std: [0.25]}",
    "views.view_b={affine: {}, elastic: {}, stroke: {}}",
    "backbone={name: conv4, width: 8}",
    "heads={hidden: 32, out: 16}",
]


@torch.no_grad()
def make_encoder(*changes: str) -> Encoder:
    """Return an encoder with random weights, and with BatchNorm as it is after training."""
    encoder = Encoder.untrained(load_recipe("glyphs", [*TINY, *changes]))
    random = torch.Generator().manual_seed(0)
    norms = [m for m in encoder.method.modules() if isinstance(m, (nn.BatchNorm1d, nn.BatchNorm2d))]
    for norm in norms:
        norm.momentum = None  # the statistics of one batch replace those it starts with
        if norm.affine:
            norm.weight.uniform_(0.5, 1.5, generator=random)
            norm.bias.uniform_(-0.2, 0.2, generator=random)
    method = encoder.method.train()
    inputs = encoder.pixels(make_images(encoder, 40)).features
    shape = (encoder.recipe.image.channels, *2 * (encoder.recipe.image.size,))
    method.predict(method.backbone(inputs.reshape(-1, *shape)))
    method.eval()
    return encoder


def make_images(encoder: Encoder, number: int) -> np.ndarray:
    """Return drawings: light paper with dark lines at random places."""
    image = encoder.recipe.image
    shape = (number, image.source_size, image.source_size, image.channels)
    random = np.random.default_rng(number)
    images = random.integers(200, 256, shape, dtype=np.uint8)
    for each in images:
        row, column = random.integers(3, image.source_size - 3, 2)
        each[row : row + 2, 2:-2] //= 4
        each[2:-2, column] //= 3
    return images
