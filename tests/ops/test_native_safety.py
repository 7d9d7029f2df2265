"""The C boundary: right numbers or a Python error, never a crash; and whose code is loaded."""

from __future__ import annotations

import copy
import ctypes
import os
import re
import shutil
import subprocess
import sys
import threading
import time
from pathlib import Path

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import nn

from psco.errors import InputError, PscoError
from psco.networks.convnet import ConvNet
from psco.networks.heads import predictor, projector
from psco.ops import native as kernels
from psco.ops.contrast import _contrast_with_target, contrast_with_queue
from psco.ops.conv_block import can_fuse, conv_block
from psco.ops.crop import crop_resize
from psco.ops.native import build, openmp, private
from psco.ops.native.build import call, size_of
from psco.ops.native.signatures import DOUBLE, INT, SIGNATURES, convert
from psco.ops.resample import all_stretches
from psco.ops.sinkhorn import Similarity, sinkhorn

SOURCES = Path(build.__file__).parent
needs_kernels = pytest.mark.usefixtures("compiled")


@pytest.fixture
def compiled():
    if reason := kernels.absence():
        pytest.skip(f"no kernels: {reason}")


def unit(*shape):
    return F.normalize(torch.randn(*shape), dim=-1)


def randn(*shape):
    torch.manual_seed(0)
    return torch.randn(*shape)


# The table of signatures.


def prototypes():
    """Return the functions that the sources export: name, result, and types of parameters."""
    text = "\n".join(path.read_text() for path in sorted(SOURCES.glob("*.c")))
    text = re.sub(r"/\*.*?\*/", "", text, flags=re.DOTALL)
    found = {}
    for result, name, inside in re.findall(
        r"^(?!static)(\w+) (\w+)\(([^)]*)\)\s*\{", text, flags=re.MULTILINE
    ):
        types = [re.sub(r"\bconst\b|\w+$", "", p.strip()).strip() for p in inside.split(",")]
        found[name] = (result, [] if inside == "void" else [re.sub(r" +", " ", t) for t in types])
    return found


def test_the_table_of_signatures_is_that_of_the_prototypes():
    declared = {
        name: (result.spelling if result else "void", [kind.spelling for kind in parameters])
        for name, (result, parameters) in SIGNATURES.items()
    }
    assert declared == prototypes()
    assert len(declared) == 20


@needs_kernels
def test_every_function_of_the_library_is_declared():
    library = build.library()
    for name, (result, parameters) in SIGNATURES.items():
        function = getattr(library, name)
        assert function.argtypes == [kind.type for kind in parameters]
        assert function.restype is (result.type if result else None)
    assert (INT.type, DOUBLE.type) == (ctypes.c_int64, ctypes.c_double)


@pytest.mark.parametrize("number", [1, True, np.int64(1), np.float32(1), np.float64(1), 1.0])
def test_a_whole_number_is_a_double_where_c_wants_one(number):
    x, y = torch.zeros(4), torch.zeros(4, dtype=torch.int64)
    given = (x, x, number, x, x, x, y, x, 1, 1, 1, 1, 1)
    converted = convert("assignment_plan", given)[2]
    assert converted == 1.0
    assert isinstance(converted, float)


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        ((1, 2), "block_scratch takes 2 arguments, not 3"),
        ((1.5,), "int64_t must be a number, not 1.5"),
        (("1",), "int64_t must be a number, not '1'"),
        ((None,), "int64_t must be a number, not None"),
        ((2**63,), "must be within 64 bits, not 9223372036854775808"),
        ((), "block_scratch takes 2 arguments, not 1"),
    ],
)
def test_arguments_that_do_not_convert_are_errors(arguments, reason):
    with pytest.raises(InputError, match=re.escape(reason)):
        convert("block_scratch", (1, *arguments))


@pytest.mark.parametrize(
    ("pointer", "reason"),
    [
        (None, "must be a tensor, not None"),
        (0, "must be a tensor, not 0"),
        (torch.zeros(4, dtype=torch.float64), "must be float32 on the CPU, not float64 on cpu"),
        (torch.zeros(4, device="meta"), "must be float32 on the CPU, not float32 on meta"),
        (torch._efficientzerotensor(4), "a tensor of shape (4,) has no memory"),
    ],
)
def test_pointers_that_lead_nowhere_are_errors(pointer, reason):
    with pytest.raises(InputError, match=re.escape(reason)):
        convert("first_block_moments", (pointer, torch.zeros(4), torch.zeros(4), 1, 1, 1, 1, 1))


def test_without_kernels_a_call_is_an_error(without_kernels):
    for act in (lambda: call("product_columns"), lambda: size_of("product_columns")):
        with pytest.raises(PscoError, match="there are no kernels"):
            act()


# Each entry with numbers of other types.

NUMBERS = [1, np.int64(1), np.float32(1), np.float64(1)]


@needs_kernels
@pytest.mark.parametrize("eps", NUMBERS, ids=repr)
def test_heads_take_any_number_for_epsilon(eps):
    x, first, second = randn(32, 32), randn(64, 32), randn(32, 64)
    scale, shift = torch.rand(64), torch.rand(64)
    out, hidden = kernels.mlp(x, first, scale, shift, second, eps)
    norm = F.batch_norm(x @ first.T, None, None, scale, shift, training=True, eps=1.0)
    torch.testing.assert_close(out, norm.relu() @ second.T, rtol=1e-4, atol=1e-4)
    exact = kernels.mlp_back(x, first, scale, shift, second, 1.0, hidden, out, True)
    found = kernels.mlp_back(x, first, scale, shift, second, eps, hidden, out, np.bool_(True))
    for a, b in zip(found, exact, strict=True):
        assert a.equal(b)


@needs_kernels
@pytest.mark.parametrize("number", NUMBERS, ids=repr)
def test_contrast_and_plan_take_any_number(number):
    z, queue = unit(32, 32), unit(64, 32)
    loss, gradient = kernels.contrast_keys(z, z, queue, number, np.bool_(True))
    expected = kernels.contrast_keys(z, z, queue, 1.0, True)
    assert loss.equal(expected[0])
    assert gradient.equal(expected[1])
    rounds = np.int64(3)
    plan = kernels.plan_of(z, queue, number, rounds)
    assert plan.written().equal(kernels.plan_of(z, queue, 1.0, 3).written())


@needs_kernels
@pytest.mark.parametrize("dtype", [torch.int64, torch.int32, torch.int16, torch.uint8])
@pytest.mark.parametrize("size", [5, np.int64(5)], ids=repr)
def test_crops_take_boxes_of_any_whole_numbers(monkeypatch, dtype, size):
    images, boxes = torch.rand(2, 3, 12, 10), torch.tensor([[1, 2, 9, 7], [0, 0, 12, 10]])
    ours = crop_resize(images, boxes.to(dtype), size, "bicubic")
    monkeypatch.setattr("psco.ops.crop.supports_crops", lambda _: False)
    torch.testing.assert_close(
        ours, crop_resize(images, boxes.to(dtype), 5, "bicubic"), rtol=0, atol=2e-6
    )


@needs_kernels
def test_blocks_take_numpy_flags():
    x, weight = randn(2, 32, 7, 7), randn(32, 32, 3, 3)
    found = kernels.conv_pool(x, weight, np.bool_(True), np.bool_(True))
    expected = F.max_pool2d(F.conv2d(x, weight, padding=1), 2, ceil_mode=True)
    torch.testing.assert_close(found.pooled, expected, rtol=1e-4, atol=1e-3)


@needs_kernels
@pytest.mark.parametrize("iterations", [0, -1, 10_001, 2**63, 1.5, None], ids=repr)
def test_rounds_out_of_range_are_errors(iterations):
    with pytest.raises(InputError, match="iterations must be a whole number from 1 to 10000"):
        kernels.plan_of(unit(32, 32), unit(64, 32), 0.05, iterations)


def test_no_rounds_are_an_error_on_any_path():
    with pytest.raises(InputError, match="iterations must be at least 1, got 0"):
        sinkhorn(Similarity(unit(5, 4), unit(6, 4)), 0.05, 0)


@needs_kernels
@pytest.mark.parametrize("number", [0, 0.01, -1, float("nan"), float("inf")])
def test_temperatures_out_of_range_are_errors(number):
    z, queue = unit(32, 32), unit(64, 32)
    with pytest.raises(InputError, match=r"temperature must be finite and at least 0\.0125"):
        kernels.contrast_keys(z, z, queue, number, False)
    with pytest.raises(InputError, match=r"epsilon must be finite and at least 0\.0125"):
        kernels.plan_of(z, queue, number, 3)


# Each entry with tensors of other shapes, formats and orders.


def entries():
    """Return for each kernel its tensors, and a call with them that returns tensors."""
    torch.manual_seed(0)
    x, weight = torch.randn(4, 32, 6, 6), torch.randn(64, 32, 3, 3)
    back = torch.randn(4, 64, 3, 3), torch.randn(64), torch.randn(64)
    image, rows = torch.randn(3, 2, 6, 4), torch.randn(19, 32)
    small = torch.rand(3, 6, 32), torch.randn(3, 6, 32)
    layers = torch.randn(9, 32), torch.randn(64, 32), torch.rand(64), torch.rand(64)
    second, up = torch.randn(32, 64), torch.randn(9, 32)
    units = torch.randn(1, 9, 64), torch.rand(64)
    pictures, boxes = torch.rand(2, 3, 12, 10), torch.tensor([[1, 2, 9, 7], [0, 0, 12, 10]])
    of_rows, of_columns = (all_stretches(s, 5, "bicubic", torch.device("cpu")) for s in (12, 10))

    def forward(x, weight):
        return kernels.conv_pool(x, weight, False, True)[:4]

    def backward(x, weight, y, pooled, *of_map):
        found = kernels.Map(pooled, torch.zeros(64), torch.ones(64), y)
        of_map = kernels.MapGradient(*of_map)
        return kernels.conv_pool_back(x, weight, found, of_map, False, True)

    def mlp(*given):
        out, hidden = kernels.mlp(*given, 1e-5)
        return out, *hidden

    def mlp_back(x, first, scale, shift, second, units, variance, up):
        hidden = kernels.Hidden(units, variance, variance)
        return kernels.mlp_back(x, first, scale, shift, second, 1e-5, hidden, up, True)

    def crop(images, boxes, a, b, c, d):
        return (kernels.crops(images, boxes, 5, (a, b), (c, d)),)

    y = F.conv2d(x, weight, padding=1)
    return {
        "conv_pool": ((x, weight), forward),
        "conv_pool_back": ((x, weight, y, F.max_pool2d(y, 2), *back), backward),
        "window_moments": ((image,), lambda x: (kernels.window_moments(x),)),
        "pooled_windows": ((image, rows), lambda *g: (kernels.pooled_windows(*g),)),
        "won_windows": ((image, rows, *small), lambda *g: (kernels.won_windows(*g),)),
        "mlp": ((*layers, second), mlp),
        "mlp_back": ((*layers, second, *units, up), mlp_back),
        "plan_of": ((unit(32, 32), unit(64, 32)), lambda *g: kernels.plan_of(*g, 0.05, 3)),
        "contrast_keys": (
            (unit(32, 32), unit(32, 32), unit(64, 32)),
            lambda *g: kernels.contrast_keys(*g, 0.2, True),
        ),
        "crops": ((pictures, boxes, *of_rows, *of_columns), crop),
    }


ENTRIES = entries()
PLACES = [(name, place) for name, (given, _) in ENTRIES.items() for place in range(len(given))]


def scattered(tensor):
    """Return the same numbers, every other one of a larger memory and in reverse order of axes."""
    memory = torch.zeros(*(2 * size for size in reversed(tensor.shape)), dtype=tensor.dtype)
    view = memory[tuple(slice(None, None, 2) for _ in tensor.shape)]
    view = view.permute(*reversed(range(tensor.ndim)))
    return view.copy_(tensor)


SPOILT = {
    "empty": lambda t: t[:0],
    "no columns": lambda t: t[..., :0],
    "short": lambda t: t[:-1],
    "narrow": lambda t: t[..., :-1],
    "long": lambda t: torch.cat([t, t]),
    "wide": lambda t: torch.cat([t, t[..., :1]], dim=-1),
    "one axis more": lambda t: t[None],
    "one axis less": lambda t: t[0],
    "scalar": lambda t: t.flatten()[0],
    "double": lambda t: t.double(),
    "half": lambda t: t.half(),
    "complex": lambda t: t.to(torch.complex64),
    "bool": lambda t: t.bool(),
    "meta": lambda t: t.to("meta"),
    "sparse": lambda t: t.to_sparse(),
    "first axis of one": lambda t: t[:1],
}
# What an entry takes although a tensor has changed: other numbers of images, filters, keys, taps.
TAKEN = {
    ("conv_pool", 0): {"short", "long", "narrow", "wide", "first axis of one"},
    ("conv_pool", 1): {"long"},
    ("window_moments", 0): {"short", "long", "first axis of one"},
    ("pooled_windows", 0): {"short", "long", "first axis of one"},
    ("mlp", 0): {"short", "long"},
    ("mlp", 4): {"long"},
    ("plan_of", 0): {"long"},
    ("plan_of", 1): {"long"},
    ("contrast_keys", 2): {"long"},
    ("crops", 3): {"narrow", "wide"},
    ("crops", 5): {"narrow", "wide"},
}


@needs_kernels
@pytest.mark.parametrize("fault", SPOILT)
@pytest.mark.parametrize(("name", "place"), PLACES)
def test_a_tensor_of_another_kind_is_an_error_of_one_line(name, place, fault):
    given, act = ENTRIES[name]
    tensor = given[place]
    if tensor.shape[:1] == (1,) and fault == "first axis of one":
        pytest.skip("it is of one anyway")
    spoilt = [*given[:place], SPOILT[fault](tensor), *given[place + 1 :]]
    if fault in TAKEN.get((name, place), ()):
        assert all(torch.is_tensor(result) for result in act(*spoilt))
        return
    with pytest.raises(InputError) as error:
        act(*spoilt)
    assert "\n" not in str(error.value)


@needs_kernels
@pytest.mark.parametrize(("name", "place"), PLACES)
def test_a_tensor_in_another_order_gives_the_same_numbers(name, place):
    given, act = ENTRIES[name]
    turned = [*given[:place], scattered(given[place]), *given[place + 1 :]]
    assert not turned[place].is_contiguous()
    for a, b in zip(act(*turned), act(*given), strict=True):
        torch.testing.assert_close(a, b, rtol=1e-5, atol=1e-5)


@needs_kernels
@pytest.mark.parametrize("name", [name for name in ENTRIES if name != "crops"])
def test_a_tensor_that_is_negated_when_it_is_read_gives_its_own_numbers(name):
    given, act = ENTRIES[name]
    negated = [torch._neg_view(-given[0]), *given[1:]]
    assert negated[0].is_neg()
    for a, b in zip(act(*negated), act(*given), strict=True):
        torch.testing.assert_close(a, b, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(
    "box",
    [
        [0, 0, 13, 5],
        [0, 0, 5, 11],
        [-1, 0, 5, 5],
        [0, -1, 5, 5],
        [8, 0, 5, 5],
        [0, 6, 5, 5],
        [0, 0, 0, 5],
        [0, 0, 5, 0],
        [0, 0, -5, 5],
        [2**62, 0, 5, 5],
        [0, 2**63 - 1, 5, 5],
        [0, 0, 2**63 - 1, 2**63 - 1],
        [-(2**63), 0, 5, 5],
    ],
    ids=str,
)
@pytest.mark.parametrize("way", ["with kernels", "without kernels"])
def test_a_box_outside_the_image_is_an_error(monkeypatch, box, way):
    if way == "without kernels":
        monkeypatch.setattr("psco.ops.crop.supports_crops", lambda _: False)
    images, boxes = torch.rand(2, 1, 12, 10), torch.tensor([[0, 0, 3, 3], box])
    with pytest.raises(InputError, match=r"must lie in 12 x 10 px, not \[") as error:
        crop_resize(images, boxes, 5, "bicubic")
    assert str(box) in str(error.value)


@pytest.mark.parametrize(
    ("images", "boxes", "size", "reason"),
    [
        (
            (2, 1, 8, 8),
            torch.ones(1, 4, dtype=torch.int64),
            4,
            "boxes must be whole numbers (2, 4)",
        ),
        ((2, 1, 8, 8), torch.ones(2, 4), 4, "boxes must be whole numbers (2, 4)"),
        ((2, 8, 8), torch.ones(2, 4, dtype=torch.int64), 4, "images must be (B, C, H, W)"),
        ((2, 1, 8, 8), torch.ones(2, 4, dtype=torch.int64), 0, "size must be at least 1"),
        ((2, 1, 0, 8), torch.ones(2, 4, dtype=torch.int64), 4, "must lie in 0 x 8 px"),
    ],
)
def test_crops_of_other_shapes_are_errors(images, boxes, size, reason):
    with pytest.raises(InputError, match=re.escape(reason)):
        crop_resize(torch.rand(images), boxes, size, "bicubic")


@pytest.mark.parametrize("shape", [(0, 3, 8, 8), (2, 0, 8, 8)], ids=str)
def test_crops_of_nothing_are_nothing(shape):
    boxes = torch.tensor([[0, 0, 4, 4]]).repeat(shape[0], 1)
    assert crop_resize(torch.rand(shape), boxes, 5, "bicubic").shape == (*shape[:2], 5, 5)


@needs_kernels
@pytest.mark.parametrize("first", [-1, 12, 2**62])
def test_weights_of_pixels_outside_the_image_are_errors(first):
    (images, boxes, firsts, *rest), act = ENTRIES["crops"]
    firsts = firsts.clone()
    firsts[3, 2] = first
    with pytest.raises(InputError, match=f"must be from 0 to 11, not {first}"):
        act(images, boxes, firsts, *rest)


@pytest.mark.parametrize(
    "sizes", [(0, 64, 32), (32, 0, 32), (7, 64, 32), (32, 65, 32), (32, 64, 5)]
)
def test_contrasts_of_any_sizes_are_their_definition(sizes):
    N, M, d = sizes
    q, z, queue = unit(N, d), unit(N, d), unit(M, d)
    logits = q.double() @ torch.cat([z, queue]).double().T / 0.2
    others = ~torch.eye(N, dtype=torch.bool)
    logits[:, :N].masked_fill_(others, -torch.inf)
    expected = F.cross_entropy(logits, torch.arange(N)).float()
    found = contrast_with_queue(q, z, queue, 0.2)
    torch.testing.assert_close(found, expected, equal_nan=True)
    keys = (q.double() @ queue.double().T / 0.2).logsumexp(dim=1)
    expected = (keys - (q * z).double().sum(dim=1) / 0.2).mean().float()
    found = _contrast_with_target(q, z, queue, 0.2)
    torch.testing.assert_close(found, expected, equal_nan=True)


@pytest.mark.parametrize("sizes", [(7, 64, 32), (32, 65, 32), (32, 64, 5)])
def test_plans_of_any_sizes_are_those_of_double_precision(sizes):
    N, M, d = sizes
    z, queue = unit(N, d), unit(M, d)
    exact = sinkhorn(Similarity(z.double(), queue.double())).scores()
    torch.testing.assert_close(
        sinkhorn(Similarity(z, queue)).scores().double(), exact, rtol=1e-3, atol=0
    )


def test_keys_of_another_width_are_an_error():
    z, queue = unit(32, 32), unit(64, 64)
    with pytest.raises(RuntimeError, match="shape"):
        sinkhorn(Similarity(z, queue))
    for contrast in (contrast_with_queue, _contrast_with_target):
        with pytest.raises(RuntimeError):
            contrast(z, z, queue, 0.2)


# Edited networks: what the layers compute as they are, to roundings.


def after_a_pass(forward, network, x):
    """Return output, gradients and buffers, or the error's type."""
    network = copy.deepcopy(network)
    x = x.detach().clone().requires_grad_(x.requires_grad)
    try:
        out = forward(network, x)
        weights = torch.randn(out.shape, generator=torch.Generator().manual_seed(1))
        (out * weights).sum().backward()
    except Exception as error:
        return type(error)
    gradients = [p.grad for p in network.parameters()] + [x.grad]
    return [out.detach(), *gradients, *network.buffers()]


def assert_as_layers(network, x):
    ours, theirs = (after_a_pass(f, network, x) for f in (type(network).forward, plainly))
    if isinstance(theirs, type):
        assert ours is theirs
        return
    assert not isinstance(ours, type), ours
    for a, b in zip(ours, theirs, strict=True):
        assert (a is None) == (b is None)
        if a is not None:
            assert a.shape == b.shape
            size = max([1.0, *b.abs().flatten().tolist()])
            torch.testing.assert_close(a, b, rtol=1e-3, atol=2e-4 * size, equal_nan=True)


def plainly(network, x):
    for layer in network:
        x = layer(x)
    return x


def assign(**values):
    def edit(layer):
        for name, value in values.items():
            setattr(layer, name, value)

    return edit


def buffers(**values):
    def edit(layer):
        for name, value in values.items():
            layer.register_buffer(name, value)

    return edit


def parameters(**values):
    def edit(layer):
        for name, value in values.items():
            layer.register_parameter(name, value if value is None else nn.Parameter(value))

    return edit


def replace_forward(layer):
    layer.forward = lambda x: 2 * x


NORM_EDITS = {
    "momentum 1": assign(momentum=1),
    "momentum 0": assign(momentum=0),
    "momentum None": assign(momentum=None),
    "momentum numpy": assign(momentum=np.float32(0.25)),
    "eps 1": assign(eps=1),
    "eps 0": assign(eps=0),
    "eps numpy": assign(eps=np.float64(0.5)),
    "no statistics": buffers(running_mean=None, running_var=None),
    "short statistics": buffers(running_mean=torch.zeros(3), running_var=torch.ones(3)),
    "double statistics": lambda norm: buffers(
        running_mean=norm.running_mean.double(), running_var=norm.running_var.double()
    )(norm),
    "strided statistics": lambda norm: buffers(
        running_mean=torch.zeros(2 * norm.num_features)[::2],
        running_var=torch.ones(2 * norm.num_features)[::2],
    )(norm),
    "not tracked": assign(track_running_stats=False),
    "no count": buffers(num_batches_tracked=None),
    "evaluation": lambda norm: norm.eval(),
    "no scale": parameters(weight=None),
    "no shift": parameters(bias=None),
    "short scale": parameters(weight=torch.ones(5)),
    "strided scale": lambda norm: parameters(
        weight=torch.linspace(-1, 1, 2 * norm.num_features)[::2]
    )(norm),
    "negative scale": lambda norm: nn.init.constant_(norm.weight, -1.5),
}
ANY_EDITS = {
    "forward hook": lambda layer: layer.register_forward_hook(lambda _, __, out: 2 * out),
    "pre-hook": lambda layer: layer.register_forward_pre_hook(lambda _, x: (x[0] + 1,)),
    "backward hook": lambda layer: layer.register_full_backward_hook(lambda _, g, __: (3 * g[0],)),
    "backward pre-hook": lambda layer: layer.register_full_backward_pre_hook(
        lambda _, g: (3 * g[0],)
    ),
    "other forward": replace_forward,
}
CONV_EDITS = {
    "stride": assign(stride=(2, 2)),
    "stride in one axis": assign(stride=(1, 2)),
    "dilation": assign(dilation=(2, 2)),
    "no padding": assign(padding=(0, 0)),
    "wide padding": assign(padding=(2, 2)),
    "same padding": assign(padding="same"),
    "reflecting": assign(padding_mode="reflect"),
    "circular": assign(padding_mode="circular"),
    "groups": assign(groups=2),
    "bias": lambda conv: parameters(bias=torch.randn(len(conv.weight)))(conv),
    "5 x 5": lambda conv: parameters(weight=torch.randn(*conv.weight.shape[:2], 5, 5))(conv),
    "1 x 1": lambda conv: parameters(weight=torch.randn(*conv.weight.shape[:2], 1, 1))(conv),
    "3 x 1": lambda conv: parameters(weight=torch.randn(*conv.weight.shape[:2], 3, 1))(conv),
    "other channels": lambda conv: parameters(weight=torch.randn(len(conv.weight), 7, 3, 3))(conv),
    "fewer filters": lambda conv: parameters(weight=conv.weight.data[:-1].clone())(conv),
    "strided weight": lambda conv: parameters(
        weight=torch.randn(3, 3, conv.weight.shape[1], len(conv.weight)).permute(3, 2, 0, 1)
    )(conv),
    "double weight": lambda conv: parameters(weight=conv.weight.data.double())(conv),
}
POOL_EDITS = {
    "3 x 3": assign(kernel_size=3),
    "pair": assign(kernel_size=(2, 2), stride=(2, 2)),
    "oblong": assign(kernel_size=(2, 1)),
    "stride 1": assign(stride=1),
    "stride None": assign(stride=None),
    "padding": assign(padding=1),
    "dilation": assign(dilation=2),
    "ceil": assign(ceil_mode=True),
    "indices": assign(return_indices=True),
}
BLOCK_EDITS = [
    (0, CONV_EDITS | ANY_EDITS),
    (1, NORM_EDITS | ANY_EDITS),
    (2, ANY_EDITS),
    (3, POOL_EDITS | ANY_EDITS),
]


@pytest.mark.parametrize("block", [0, 4], ids=["first block", "second block"])
@pytest.mark.parametrize(
    ("layer", "edit"),
    [(layer, edit) for layer, edits in BLOCK_EDITS for edit in edits],
)
def test_an_edited_block_is_that_of_its_layers(block, layer, edit):
    torch.manual_seed(0)
    network = ConvNet(2, 3, 32, ceil_pooling=False)
    dict(BLOCK_EDITS)[layer][edit](network[block + layer])
    assert_as_layers(network, torch.randn(4, 3, 10, 12))


class Doubled(nn.ReLU):
    def forward(self, x):
        return 2 * super().forward(x)


NETWORK_EDITS = {
    "other activation": lambda net: net.__setitem__(2, nn.GELU()),
    "subclass": lambda net: net.__setitem__(2, Doubled()),
    "other pooling": lambda net: net.__setitem__(3, nn.AvgPool2d(2)),
    "other norm": lambda net: net.__setitem__(1, nn.InstanceNorm2d(32, affine=True)),
    "no norm": lambda net: net.__setitem__(1, nn.Identity()),
    "no pooling": lambda net: net.__delitem__(7),
    "no flattening": lambda net: net.__delitem__(8),
    "one more layer": lambda net: net.append(nn.Linear(32 * 6, 4)),
    "one layer before": lambda net: net.insert(0, nn.Upsample(scale_factor=2)),
    "weight norm": lambda net: nn.utils.parametrizations.weight_norm(net[4]),
    "frozen": lambda net: net.requires_grad_(False) and net[5].requires_grad_(True),
}


@pytest.mark.parametrize("edit", NETWORK_EDITS)
def test_an_edited_network_is_that_of_its_layers(edit):
    torch.manual_seed(0)
    network = ConvNet(2, 3, 32, ceil_pooling=False)
    NETWORK_EDITS[edit](network)
    assert_as_layers(network, torch.randn(4, 3, 10, 12))


@pytest.mark.parametrize(
    "shape",
    [(0, 3, 10, 12), (4, 3, 1, 12), (4, 3, 2, 2), (1, 3, 1, 1), (3, 10, 12), (4, 5, 10, 12)],
    ids=str,
)
@pytest.mark.parametrize("depth", [1, 2])
def test_images_of_any_shape_give_what_the_layers_do(shape, depth):
    torch.manual_seed(0)
    assert_as_layers(ConvNet(depth, 3, 32, ceil_pooling=False), torch.randn(shape))


@pytest.mark.parametrize("depth", [1, 2])
def test_images_in_any_order_of_memory_give_what_the_layers_do(depth):
    torch.manual_seed(0)
    network = ConvNet(depth, 3, 32, ceil_pooling=False)
    assert_as_layers(network, scattered(torch.randn(4, 3, 10, 12)))
    assert_as_layers(network, torch.randn(1, 3, 10, 12).expand(4, 3, 10, 12))


def test_a_hook_on_all_modules_sees_every_layer():
    network, seen = ConvNet(1, 3, 32, ceil_pooling=False), []
    handle = nn.modules.module.register_module_forward_hook(lambda m, _, __: seen.append(type(m)))
    try:
        network(torch.randn(4, 3, 10, 12))
    finally:
        handle.remove()
    assert seen[:4] == [nn.Conv2d, nn.BatchNorm2d, nn.ReLU, nn.MaxPool2d]


def test_an_unedited_block_is_fused_all_the_same():
    layers = list(ConvNet(1, 3, 32, ceil_pooling=False))[:4]
    assert can_fuse(torch.randn(4, 3, 10, 12), *layers)
    layers[1].momentum, layers[1].eps = 1, 1
    x = torch.randn(4, 3, 10, 12)
    assert can_fuse(x, *layers)
    found = conv_block(x, layers[0], layers[1], layers[3])
    torch.testing.assert_close(found, nn.Sequential(*layers)(x), rtol=1e-4, atol=1e-4)


LINEAR_EDITS = {
    "bias": lambda layer: parameters(bias=torch.randn(len(layer.weight)))(layer),
    "strided weight": lambda layer: parameters(weight=torch.randn(*reversed(layer.weight.shape)).T)(
        layer
    ),
    "narrow weight": lambda layer: parameters(weight=layer.weight.data[:, :-1].clone())(layer),
    "fewer rows": lambda layer: parameters(weight=layer.weight.data[:-1].clone())(layer),
    "double weight": lambda layer: parameters(weight=layer.weight.data.double())(layer),
}
HEAD_EDITS = [
    (0, LINEAR_EDITS | ANY_EDITS),
    (1, NORM_EDITS | ANY_EDITS),
    (2, ANY_EDITS),
    (3, LINEAR_EDITS | ANY_EDITS),
]


@pytest.mark.parametrize(
    ("layer", "edit"), [(layer, edit) for layer, edits in HEAD_EDITS for edit in edits]
)
@pytest.mark.parametrize("make", [projector, predictor])
def test_an_edited_head_is_that_of_its_layers(make, layer, edit):
    torch.manual_seed(0)
    head = make(32, 64, 32) if make is projector else make(32, 64)
    dict(HEAD_EDITS)[layer][edit](head[layer])
    assert_as_layers(head, torch.randn(16, 32, requires_grad=True))


@pytest.mark.parametrize(
    "shape", [(0, 32), (1, 32), (2, 32), (16, 31), (16,), (16, 32, 1)], ids=str
)
def test_features_of_any_shape_give_what_the_layers_do(shape):
    torch.manual_seed(0)
    assert_as_layers(projector(32, 64, 32), torch.randn(shape, requires_grad=True))


def test_features_in_any_order_of_memory_give_what_the_layers_do():
    torch.manual_seed(0)
    assert_as_layers(predictor(32, 64), scattered(torch.randn(16, 32)))
    assert_as_layers(predictor(32, 64), torch.randn(16, 1).expand(16, 32))


@pytest.mark.parametrize("keep", [0, 1, 2, 3])
def test_a_head_of_fewer_layers_runs_them(keep):
    torch.manual_seed(0)
    head = predictor(32, 64)
    del head[keep:]
    x = torch.randn(16, 32)
    torch.testing.assert_close(head(x), plainly(copy.deepcopy(head), x))


# Whose code is loaded.


def content(path):
    path.write_bytes(b"content")


def refuse(_):
    raise AssertionError("it was there already")


@pytest.fixture
def folder(tmp_path):
    return tmp_path / "native"


def test_the_folder_is_private_and_a_file_in_it_is_made_once(folder):
    path = private.made_once(folder, "a.so", content)
    assert folder.stat().st_mode & 0o777 == 0o700
    assert path.read_bytes() == b"content"
    assert sorted(p.name for p in folder.iterdir()) == [".lock", "a.so", "a.so.sha256"]
    assert all(p.stat().st_mode & 0o077 == 0 for p in folder.iterdir())
    assert private.made_once(folder, "a.so", refuse) == path


def plant(folder):
    (folder / "a.so").write_bytes(b"planted")
    (folder / "a.so.sha256").write_bytes(private._digest(b"planted") + b"\n")


def link_to(name):
    def act(folder):
        elsewhere = folder.parent / "elsewhere"
        (folder / name).replace(elsewhere)
        (folder / name).symlink_to(elsewhere)

    return act


def second_name(folder):
    os.link(folder / "a.so", folder.parent / "second")


FAULTS = {
    "damaged": lambda folder: (folder / "a.so").write_bytes(b"contend"),
    "cut short": lambda folder: (folder / "a.so").write_bytes(b"cont"),
    "empty": lambda folder: (folder / "a.so").write_bytes(b""),
    "missing": lambda folder: (folder / "a.so").unlink(),
    "no digest": lambda folder: (folder / "a.so.sha256").unlink(),
    "other digest": lambda folder: (folder / "a.so.sha256").write_text("0" * 64),
    "writable by the group": lambda folder: (folder / "a.so").chmod(0o720),
    "writable by all": lambda folder: (folder / "a.so").chmod(0o702),
    "digest writable by all": lambda folder: (folder / "a.so.sha256").chmod(0o666),
    "a link": link_to("a.so"),
    "digest is a link": link_to("a.so.sha256"),
    "two names": second_name,
    "half-written": lambda folder: (
        (folder / "a.so.sha256").unlink(),
        (folder / ".building-library").write_bytes(b"con"),
    ),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_file_that_cannot_be_trusted_is_made_anew(folder, fault):
    private.made_once(folder, "a.so", content)
    FAULTS[fault](folder)
    assert not private.is_trusted(folder / "a.so")
    path = private.made_once(folder, "a.so", content)
    assert private.is_trusted(path)
    assert path.read_bytes() == b"content"
    assert not path.is_symlink()
    assert sorted(p.name for p in folder.iterdir()) == [".lock", "a.so", "a.so.sha256"]


@pytest.mark.parametrize("mode", [0o770, 0o707, 0o777, 0o720])
def test_a_folder_that_others_can_write_to_is_refused(folder, mode):
    folder.mkdir()
    plant(folder)
    folder.chmod(mode)
    with pytest.raises(PermissionError, match=f"must have mode 0700, not 0{mode:o}"):
        private.made_once(folder, "a.so", content)


def test_a_folder_that_others_can_read_becomes_private(folder):
    folder.mkdir(mode=0o755)
    folder.chmod(0o755)
    private.made_once(folder, "a.so", content)
    assert folder.stat().st_mode & 0o777 == 0o700


def test_a_folder_behind_a_link_is_refused(folder, tmp_path):
    (tmp_path / "real").mkdir(mode=0o700)
    folder.symlink_to(tmp_path / "real")
    with pytest.raises(NotADirectoryError, match="links are not followed"):
        private.made_once(folder, "a.so", content)


def test_a_folder_or_file_of_another_user_is_refused(folder, monkeypatch):
    path = private.made_once(folder, "a.so", content)
    user = os.geteuid()
    monkeypatch.setattr(os, "geteuid", lambda: user + 1)
    assert not private.is_trusted(path)
    with pytest.raises(PermissionError, match=f"must belong to user {user + 1}, not {user}"):
        private.made_once(folder, "a.so", content)


def test_a_build_that_fails_leaves_nothing_behind(folder):
    def fail(path):
        path.write_bytes(b"half")
        raise OSError("no room")

    with pytest.raises(OSError, match="no room"):
        private.made_once(folder, "a.so", fail)
    assert [path.name for path in folder.iterdir()] == [".lock"]


def test_of_several_builders_one_builds(folder):
    made, found = [], []

    def slowly(path):
        made.append(path)
        time.sleep(0.1)
        content(path)

    def build_one():
        found.append(private.made_once(folder, "a.so", slowly).read_bytes())

    threads = [threading.Thread(target=build_one) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (len(made), found) == (1, [b"content"] * 6)


def test_the_folder_is_apart_from_the_cache_and_the_users_own(monkeypatch, tmp_path):
    monkeypatch.delenv("PSCO_NATIVE_DIR")
    monkeypatch.setenv("PSCO_CACHE", str(tmp_path / "shared"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    assert private.native_dir() == tmp_path / "xdg" / f"psco-native-{os.geteuid()}"
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert private.native_dir() == tmp_path / ".cache" / f"psco-native-{os.geteuid()}"
    monkeypatch.setenv("PSCO_NATIVE_DIR", "~/own")
    assert private.native_dir() == tmp_path / "own"


def absence_in_a_process(**environment):
    script = "from psco.ops.native import absence; print(absence())"
    environment = {**os.environ, "PSCO_KERNELS": "", **environment}
    command = [sys.executable, "-c", script]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


@needs_kernels
def test_a_damaged_library_is_compiled_again_before_it_is_opened(folder):
    assert absence_in_a_process(PSCO_NATIVE_DIR=str(folder)) == "None"
    (library,) = folder.glob("*.so")
    good = library.read_bytes()
    library.write_bytes(good[: len(good) // 2])  # would crash the loader
    assert absence_in_a_process(PSCO_NATIVE_DIR=str(folder)) == "None"
    assert private.is_trusted(library)


@needs_kernels
def test_without_a_private_folder_there_are_no_kernels_and_a_reason(folder):
    folder.mkdir()
    folder.chmod(0o777)
    said = absence_in_a_process(PSCO_NATIVE_DIR=str(folder))
    assert said == f"{folder} must have mode 0700, not 0777; remove it"


# One OpenMP runtime.


@needs_kernels
def test_the_kernels_run_on_the_runtime_of_torch():
    library = build.library()
    openmp.refuse_other_threads(library)
    runtimes = {
        line.split()[-1]
        for line in Path("/proc/self/maps").read_text().splitlines()
        if re.search(r"/lib(omp|iomp)", line)
    }
    assert not runtimes


def test_without_a_runtime_of_torch_there_are_no_kernels(monkeypatch, tmp_path):
    (tmp_path / "lib").mkdir()
    monkeypatch.setattr(openmp.torch, "__file__", str(tmp_path / "__init__.py"))
    build.forget()
    try:
        reason = build.absence()
    finally:
        monkeypatch.undo()
        build.forget()
    if os.environ.get("PSCO_KERNELS") != "off":
        assert reason == "torch must bring one libgomp to share its threads, found none"


@needs_kernels
def test_a_library_that_needs_another_runtime_is_refused_before_it_is_opened(tmp_path):
    runtime = openmp.torch_runtime()
    source, other, library = (tmp_path / name for name in ("a.c", "libomp.so.5", "a.so"))
    source.write_text("int answer(void) { return 42; }\n")
    cc = [*os.environ.get("CC", "cc").split(), "-shared", "-fPIC", "-o"]
    subprocess.run([*cc, other, source, "-Wl,-soname,libomp.so.5"], check=True)
    subprocess.run([*cc, library, source, "-Wl,--no-as-needed", other], check=True)
    assert "libomp.so.5" in openmp.linkage(library).needed
    with pytest.raises(OSError, match=r"links libomp\.so\.5 beside torch's"):
        openmp.refuse_other_runtime(library, runtime)
    subprocess.run([*cc, library, source], check=True)
    with pytest.raises(OSError, match="does not link torch's"):
        openmp.refuse_other_runtime(library, runtime)


@pytest.mark.parametrize(
    "bytes_", [b"", b"text", b"\x7fELF\x02\x01", b"\x7fELF\x02\x01" + b"\0" * 80]
)
def test_what_is_no_library_is_refused(tmp_path, bytes_):
    path = tmp_path / "a.so"
    path.write_bytes(bytes_)
    with pytest.raises(OSError, match=r"a\.so is"):
        openmp.linkage(path)


needs_clang = pytest.mark.skipif(shutil.which("clang") is None, reason="no clang is installed")


@needs_clang
@needs_kernels
def test_clang_is_refused_as_it_brings_its_own_runtime(folder):
    said = absence_in_a_process(PSCO_NATIVE_DIR=str(folder), CC="clang")
    assert "\n" not in said
    assert "libomp" in said or "omp.h" in said or "-lomp" in said
    assert not list(folder.glob("*.so*"))


@pytest.mark.parametrize("march", ["native", "haswell", "x86-64"])
@pytest.mark.parametrize("compiler", ["gcc", pytest.param("clang", marks=needs_clang)])
def test_the_sources_compile_without_a_warning(tmp_path, compiler, march):
    if shutil.which(compiler) is None:
        pytest.skip(f"no {compiler} is installed")
    if march != "native" and "x86_64" not in os.uname().machine:
        pytest.skip("flags for x86-64")
    flags = [f"-march={march}", *(flag for flag in build._FLAGS if "march" not in flag)]
    for source in sorted(SOURCES.glob("*.c")):
        command = [compiler, *flags, "-Wall", "-Wextra", "-Werror", "-c", source]
        done = subprocess.run(
            [*command, "-o", tmp_path / "a.o"], capture_output=True, text=True, timeout=120
        )
        if "omp.h" in done.stderr and "not found" in done.stderr:
            pytest.skip(f"{compiler} has no omp.h")
        assert (done.returncode, done.stderr) == (0, "")


class Elsewhere(torch.Tensor):
    """A tensor that may keep its numbers elsewhere."""


def test_a_subclass_of_tensors_is_left_to_torch():
    x, weight = randn(4, 32, 6, 6), randn(32, 32, 3, 3)
    other = x.as_subclass(Elsewhere)
    assert not kernels.supports_conv_pool(other, weight)
    assert not can_fuse(other, *list(ConvNet(1, 32, 32, ceil_pooling=False))[:4])
