from __future__ import annotations

import pytest
import torch
from torch import nn

import psco
from psco.networks import output_width


@pytest.mark.parametrize(
    ("backbone", "channels", "size", "width"),
    [
        (psco.conv4, 1, 28, 256),  # the paper's 64 x 2 x 2, by ceil pooling
        (psco.conv5, 3, 84, 256),  # the paper's 64 x 2 x 2, by floor pooling
        (psco.conv4, 3, 84, 1600),
        (psco.conv4, 1, 105, 2304),
    ],
)
def test_backbones_have_the_widths_of_the_paper(backbone, channels, size, width):
    network = backbone(channels, size)
    assert output_width(network, channels, size) == width
    assert network(torch.randn(3, channels, size, size)).shape == (3, width)


def test_floor_pooling_can_be_forced():
    assert output_width(psco.conv4(1, 28, ceil_pooling=False), 1, 28) == 64


def test_the_projector_ends_in_a_batch_norm_without_affine_map_and_the_predictor_does_not():
    g, h = psco.projector(256), psco.predictor(128)
    assert isinstance(g[-1], nn.BatchNorm1d)
    assert not g[-1].affine
    assert isinstance(h[-1], nn.Linear)
    for head in (g, h):
        linears = [layer for layer in head if isinstance(layer, nn.Linear)]
        assert [layer.bias for layer in linears] == [None, None]
        assert linears[0].out_features == 2048
        assert linears[1].out_features == 128


def test_an_image_too_small_for_the_backbone_is_refused():
    with pytest.raises(psco.InputError, match="needs image_size >= 32, got 28"):
        psco.conv5(3, 28)


def test_a_backbone_that_returns_maps_is_refused():
    with pytest.raises(psco.InputError, match=r"must return \(B, d\), got \(1, 4, 8, 8\)"):
        output_width(nn.Conv2d(1, 4, 1), 1, 8)


def test_a_backbone_for_other_channels_is_refused():
    with pytest.raises(psco.InputError, match="does not accept images of 3 x 28 x 28"):
        output_width(psco.conv4(1, 28), 3, 28)
