"""The fused block gives the numbers of its four layers: outputs, gradients, running statistics."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import nn

from psco.networks.convnet import ConvNet
from psco.ops import first_block
from psco.ops.conv_block import can_fuse, conv_block
from psco.ops.first_block import patch_moments, patches


def layers(channels=3, width=5, ceil=False, dtype=torch.float64):
    torch.manual_seed(0)
    block = nn.Sequential(
        nn.Conv2d(channels, width, 3, padding=1, bias=False),
        nn.BatchNorm2d(width),
        nn.ReLU(inplace=True),
        nn.MaxPool2d(2, ceil_mode=ceil),
    ).to(dtype)
    with torch.no_grad():
        block[1].weight.copy_(torch.tensor([1.0, -0.7, 0.0, 2.0, -1.5])[:width])
        block[1].bias.copy_(torch.randn(width))
    return block


def fused(block, x):
    assert can_fuse(x, *block)
    return conv_block(x, block[0], block[1], block[3])


def images(*shape, dtype=torch.float64):
    torch.manual_seed(1)
    return torch.randn(*shape, dtype=dtype).to(memory_format=torch.channels_last)


def both_ways(x, block, forward):
    """Give the output, all gradients and the running statistics after one pass."""
    block, x = copy.deepcopy(block), x.detach().clone().requires_grad_(x.requires_grad)
    out = forward(block, x)
    weights = torch.randn(out.shape, dtype=out.dtype, generator=torch.Generator().manual_seed(2))
    (out * weights).sum().backward()
    gradients = [p.grad for p in block.parameters()] + ([x.grad] if x.requires_grad else [])
    return [out.detach(), *gradients, *block.buffers()]


@pytest.mark.parametrize("first", [True, False], ids=["images", "maps"])
@pytest.mark.parametrize(
    ("size", "ceil"), [((8, 8), False), ((7, 9), True), ((7, 9), False)], ids=str
)
def test_output_gradients_and_statistics_are_those_of_the_layers(size, ceil, first):
    block, x = layers(ceil=ceil), images(4, 3, *size).requires_grad_(not first)
    ours = both_ways(x, block, fused)
    theirs = both_ways(x, block, lambda block, x: block(x))
    assert len(ours) == len(theirs)
    for a, b in zip(ours, theirs, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-9, atol=1e-11)


@pytest.mark.parametrize("gradients", [True, False])
@pytest.mark.parametrize("size", [(8, 8), (7, 8)], ids=str)
def test_images_may_be_taken_a_few_at_a_time(monkeypatch, size, gradients):
    block, x = layers(), images(7, 3, *size)
    with torch.set_grad_enabled(gradients):
        whole = fused(copy.deepcopy(block), x)
        monkeypatch.setattr("psco.ops.first_block._MAP_AT_ONCE", 700)  # two or three images
        torch.testing.assert_close(fused(block, x), whole)


def test_the_first_block_is_the_same_without_the_compiler(monkeypatch):
    block, x = layers(), images(5, 3, 8, 8)
    assert isinstance(first_block._compiled(first_block._won), torch.jit.ScriptFunction)
    compiled = both_ways(x, block, fused)
    monkeypatch.setattr(first_block, "_compiled", lambda function: function)
    for a, b in zip(both_ways(x, block, fused), compiled, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-12, atol=1e-12)


def test_equal_numbers_in_a_window_pass_the_gradient_to_one_of_them():
    block, x = layers(), torch.ones(3, 3, 8, 8, dtype=torch.float64)
    ours, theirs = (both_ways(x, block, f) for f in (fused, lambda block, x: block(x)))
    for a, b in zip(ours, theirs, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-9, atol=1e-9)


def test_without_gradients_the_statistics_move_all_the_same():
    block, x = layers(), images(4, 3, 8, 8)
    other = copy.deepcopy(block)
    with torch.no_grad():
        torch.testing.assert_close(fused(block, x), other(x))
    torch.testing.assert_close(block[1].running_var, other[1].running_var)
    assert block[1].num_batches_tracked == 1


def test_single_precision_holds_for_images_far_from_zero_mean():
    x = (10 + images(64, 1, 28, 28)).round()
    exact, single = layers(1, 5), layers(1, 5, dtype=torch.float32)
    out = fused(exact, x)
    torch.testing.assert_close(fused(single, x.float()).double(), out, rtol=1e-4, atol=1e-4)


def test_patches_come_window_by_window_with_a_one_and_moments_are_their_products():
    x = images(3, 2, 6, 4)
    padded = torch.zeros(3, 2, 8, 6, dtype=x.dtype)
    padded[:, :, 1:-1, 1:-1] = x
    places = [
        (2 * i + a, 2 * j + b) for a in (0, 1) for b in (0, 1) for i in range(3) for j in range(2)
    ]
    moments = torch.zeros(19, 19).double()
    rows = patches(x)
    assert rows.shape == (3, 19, 24)
    for n in range(3):
        for place, (i, j) in enumerate(places):
            p = torch.cat([padded[n, :, i : i + 3, j : j + 3].flatten(), torch.ones(1)])
            assert rows[n, :, place].equal(p)
            moments += p[:, None] * p
    torch.testing.assert_close(patch_moments(rows), moments)


def test_a_network_computes_the_same_with_and_without_fusing(monkeypatch):
    torch.manual_seed(0)
    net, x = ConvNet(4, 1, 8, ceil_pooling=True), images(6, 1, 28, 28, dtype=torch.float32)
    plain = copy.deepcopy(net)
    quick = net(x)
    quick.square().sum().backward()
    monkeypatch.setattr("psco.networks.convnet.can_fuse", lambda *_: False)
    slow = plain(x)
    slow.square().sum().backward()
    torch.testing.assert_close(quick, slow, rtol=1e-4, atol=1e-5)
    for ours, theirs in zip(net.parameters(), plain.parameters(), strict=True):
        assert (ours.grad - theirs.grad).norm() <= 1e-4 * theirs.grad.norm()


@pytest.mark.parametrize("case", ["evaluation", "other norm", "autocast", "vmap", "half"])
def test_where_the_block_does_not_apply_the_layers_run(case):
    block, x = layers(dtype=torch.float32), images(4, 3, 8, 8, dtype=torch.float32)
    if case == "evaluation":
        assert not can_fuse(x, *block.eval())
    elif case == "other norm":
        block[1] = nn.InstanceNorm2d(5)
        assert not can_fuse(x, *block)
    elif case == "autocast":
        with torch.autocast("cpu", dtype=torch.bfloat16):
            assert not can_fuse(x, *block)
    elif case == "vmap":
        seen = []
        torch.vmap(lambda x: seen.append(can_fuse(x, *block)) or x)(x[None])
        assert seen == [False]
    else:
        assert not can_fuse(x.bfloat16(), *block)
