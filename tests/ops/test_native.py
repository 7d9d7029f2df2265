"""The kernels in C give the numbers of their twins in torch, and are not needed."""

from __future__ import annotations

import copy
import os
import shutil
import subprocess
import sys

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from psco.networks.heads import predictor, projector
from psco.ops import native as kernels
from psco.ops.contrast import _contrast_with_target, contrast_with_queue
from psco.ops.conv_block import can_fuse, conv_block
from psco.ops.crop import crop_resize
from psco.ops.native import build
from psco.ops.sinkhorn import Similarity, sinkhorn
from psco.ops.top_k import top_k
from psco.views.crop import sample_boxes

needs_kernels = pytest.mark.usefixtures("compiled")


@pytest.fixture
def compiled():
    if reason := kernels.absence():
        pytest.skip(f"no kernels: {reason}")


@pytest.fixture(params=[1, 3], ids=["one thread", "three threads"])
def threads(request):
    before = torch.get_num_threads()
    torch.set_num_threads(request.param)
    yield request.param
    torch.set_num_threads(before)


def after_a_pass(layers, x, dtype, forward):
    """Give the output, all gradients and the running statistics, in double precision."""
    layers = copy.deepcopy(layers).to(dtype)
    x = x.detach().to(dtype).requires_grad_(x.requires_grad)
    out = forward(layers, x)
    weights = torch.randn(out.shape, generator=torch.Generator().manual_seed(2))
    (out * weights).sum().backward()
    gradients = [p.grad for p in layers.parameters()] + ([x.grad] if x.requires_grad else [])
    return [t.detach().double() for t in (out, *gradients, *layers.buffers())]


def assert_close(ours, theirs, tolerance=2e-5):
    assert len(ours) == len(theirs)
    for a, b in zip(ours, theirs, strict=True):
        assert a.shape == b.shape
        assert (a - b).abs().max() <= tolerance * max(1.0, float(b.abs().max()))


def conv_layers(channels, width, ceil):
    torch.manual_seed(0)
    norm = nn.BatchNorm2d(width)
    nn.init.normal_(norm.weight)  # negative ones too
    nn.init.normal_(norm.bias)
    conv = nn.Conv2d(channels, width, 3, padding=1, bias=False)
    return nn.Sequential(conv, norm, nn.ReLU(), nn.MaxPool2d(2, ceil_mode=ceil))


def fused_block(layers, x):
    assert can_fuse(x, *layers)
    return conv_block(x, layers[0], layers[1], layers[3])


@needs_kernels
@pytest.mark.parametrize("ceil", [False, True], ids=["floor", "ceil"])
@pytest.mark.parametrize(
    "shape", [(5, 14, 14), (4, 7, 7), (3, 4, 4), (2, 5, 8), (1, 3, 2), (2, 21, 17)], ids=str
)
@pytest.mark.parametrize("channels", [32, 64])
def test_a_block_is_that_of_its_layers(threads, channels, shape, ceil):
    layers = conv_layers(channels, 64, ceil)
    x = torch.randn(shape[0], channels, *shape[1:], requires_grad=True)
    assert kernels.supports_conv_pool(x, layers[0].weight)
    ours = after_a_pass(layers, x, torch.float32, fused_block)
    assert_close(ours, after_a_pass(layers, x, torch.float64, lambda f, x: f(x)))


@needs_kernels
@pytest.mark.parametrize(
    "shape", [(5, 1, 28, 28), (3, 3, 10, 6), (2, 3, 84, 84), (1, 2, 2, 2)], ids=str
)
def test_a_first_block_is_that_of_its_layers(threads, shape):
    layers, x = conv_layers(shape[1], 32, ceil=False), 1 + torch.randn(shape)
    assert kernels.supports_windows(x, layers[0].weight)
    ours = after_a_pass(layers, x, torch.float32, fused_block)
    assert_close(ours, after_a_pass(layers, x, torch.float64, lambda f, x: f(x)))


@needs_kernels
@pytest.mark.parametrize("channels", [1, 32], ids=["images", "maps"])
def test_of_equal_numbers_in_a_window_one_gets_the_gradient(channels):
    layers = conv_layers(channels, 32, ceil=False)
    x = torch.ones(3, channels, 8, 8, requires_grad=channels > 1)
    ours, theirs = (
        after_a_pass(layers, x, torch.float32, forward)
        for forward in (fused_block, lambda layers, x: layers(x))
    )
    assert_close(ours, theirs, 1e-4)


@needs_kernels
@pytest.mark.parametrize("bad", [torch.nan, torch.inf])
def test_weights_that_are_not_finite_are_not_hidden(bad):
    for channels in (1, 32):
        layers, x = conv_layers(channels, 32, ceil=False), torch.randn(2, channels, 8, 8)
        layers[0].weight.data[3, 0, 1, 1] = bad
        finite = fused_block(layers, x).isfinite().flatten(2).all(dim=2)  # (N, C)
        assert finite.all(dim=0).tolist() == [place != 3 for place in range(32)]
    head = predictor(32, 64)
    head[0].weight.data[5, 7] = bad
    assert not head(torch.randn(8, 32)).isfinite().any()


@needs_kernels
def test_kernels_do_not_depend_on_the_number_format_that_torch_makes_by_itself():
    inputs = torch.randn(32, 1, 16, 16), torch.randn(32, 32, 8, 8), unit(32, 32), unit(64, 32)
    layers = conv_layers(1, 32, False), conv_layers(32, 32, False), predictor(32, 64)
    boxes = torch.tensor([[1, 2, 9, 7]]).repeat(32, 1)

    def outputs():
        images, maps, z, queue = inputs
        first, second, head = copy.deepcopy(layers)
        maps = maps.clone().requires_grad_()
        total = fused_block(first, images).sum() + fused_block(second, maps).sum() + head(z).sum()
        total.backward()
        plan = sinkhorn(Similarity(z, queue)).scores()
        return total, maps.grad, plan, crop_resize(images.clamp(0, 1), boxes, 5, "bicubic")

    expected = outputs()
    torch.set_default_dtype(torch.float64)
    try:
        found = outputs()
    finally:
        torch.set_default_dtype(torch.float32)
    for a, b in zip(found, expected, strict=True):
        torch.testing.assert_close(a, b)


@needs_kernels
@pytest.mark.parametrize("make", [projector, predictor])
@pytest.mark.parametrize(("count", "needs_input"), [(128, True), (8, True), (75, False)])
def test_a_head_is_that_of_its_layers(threads, make, count, needs_input):
    torch.manual_seed(0)
    head = make(64, 192, 32) if make is projector else make(64, 192)
    nn.init.normal_(head[1].weight)
    nn.init.normal_(head[1].bias)
    x = torch.randn(count, 64, requires_grad=needs_input)
    assert kernels.supports_mlp(x, head[0].weight, head[3].weight)
    ours = after_a_pass(head, x, torch.float32, lambda f, x: f(x))
    assert_close(ours, after_a_pass(head, x, torch.float64, lambda f, x: f(x)))


@needs_kernels
def test_a_head_in_evaluation_mode_uses_its_running_statistics():
    head = predictor(64, 64).eval()
    x = torch.randn(64, 64)
    hidden = F.relu(x @ head[0].weight.T / (1 + head[1].eps) ** 0.5)
    torch.testing.assert_close(head(x), hidden @ head[3].weight.T)


def unit(*shape):
    return F.normalize(torch.randn(*shape), dim=-1)


@needs_kernels
@pytest.mark.parametrize("iterations", [1, 2, 3, 6])
@pytest.mark.parametrize(("keys", "size", "dim"), [(32, 64, 32), (96, 640, 64)])
def test_a_plan_ranks_as_sinkhorns_rounds_in_torch(threads, keys, size, dim, iterations):
    torch.manual_seed(0)
    z, queue = unit(keys, dim), unit(size, dim)
    plan = sinkhorn(Similarity(z, queue), 0.05, iterations)
    assert plan.best is not None  # which only the kernel finds on the way
    expected = sinkhorn(z.double() @ queue.double().T, 0.05, iterations)
    torch.testing.assert_close(plan.dense().double(), expected, rtol=5e-5, atol=0)
    matrix = plan.scores()
    for k in (1, 2, 10, size):
        scores = matrix.gather(1, top_k(plan, k))
        assert scores.equal(matrix.sort(dim=1, descending=True).values[:, :k])


@needs_kernels
def test_of_equal_keys_in_the_queue_the_first_is_the_best_shot():
    torch.manual_seed(0)
    z, queue = unit(32, 32), unit(64, 32).repeat(3, 1)
    assert (top_k(sinkhorn(Similarity(z, queue)), 1) < 64).all()


@needs_kernels
@pytest.mark.parametrize("filter", ["bilinear", "bicubic"])
@pytest.mark.parametrize(
    ("shape", "size"), [((6, 1, 105, 105), 28), ((4, 3, 20, 31), 33), ((3, 2, 5, 9), 4)], ids=str
)
@pytest.mark.parametrize("kind", ["bytes", "floats", "by pixel"])
def test_crops_are_those_of_matrix_products(monkeypatch, threads, kind, shape, size, filter):
    torch.manual_seed(0)
    images = torch.randint(0, 256, shape, dtype=torch.uint8)
    if kind == "by pixel":
        images = images.contiguous(memory_format=torch.channels_last)
    if kind == "floats":
        images = images / 255
    boxes = sample_boxes(shape[0], *shape[2:], (0.05, 1.0), (0.5, 2.0), torch.Generator())
    boxes[0] = torch.tensor([1, 2, 1, 1])  # a single pixel
    boxes[1] = torch.tensor([0, 0, *shape[2:]])
    ours = crop_resize(images, boxes, size, filter)
    monkeypatch.setattr("psco.ops.crop.supports_crops", lambda _: False)
    torch.testing.assert_close(ours, crop_resize(images, boxes, size, filter), rtol=0, atol=2e-6)


@pytest.mark.parametrize("temperature", [1.0, 0.2, 0.001])
def test_a_contrast_with_a_target_is_its_definition(temperature):
    torch.manual_seed(0)
    q, target, keys = unit(7, 5).double().requires_grad_(), unit(7, 5).double(), unit(9, 5).double()
    logits = q @ keys.T / temperature
    expected = (logits.logsumexp(dim=1) - (q * target).sum(dim=1) / temperature).mean()
    loss = _contrast_with_target(q, target, keys, temperature)
    torch.testing.assert_close(loss, expected)
    torch.testing.assert_close(
        *(torch.autograd.grad(3 * value, q)[0] for value in (loss, expected))
    )


@needs_kernels
@pytest.mark.parametrize("temperature", [1.0, 0.05])
@pytest.mark.parametrize(("queries", "size", "dim"), [(32, 64, 32), (96, 640, 64)])
def test_a_contrast_by_the_kernel_is_that_of_double_precision(
    threads, queries, size, dim, temperature
):
    torch.manual_seed(0)
    q, target, keys = unit(queries, dim), unit(queries, dim), unit(size, dim)
    assert kernels.supports_contrast(q, target, keys)
    for contrast in (_contrast_with_target, contrast_with_queue):
        found = []
        for dtype in (torch.float32, torch.float64):
            given = q.to(dtype).requires_grad_()
            loss = contrast(given, target.to(dtype), keys.to(dtype), temperature)
            found.append([loss.detach().double(), torch.autograd.grad(3 * loss, given)[0].double()])
        assert_close(*found, tolerance=5e-7)


def test_without_kernels_nothing_is_supported(without_kernels):
    assert build.library() is None
    x, weight = torch.randn(64, 64, 4, 4), torch.randn(64, 64, 3, 3)
    assert not kernels.supports_conv_pool(x, weight)
    assert not kernels.supports_windows(x, weight)
    assert not kernels.supports_crops(x)
    assert not kernels.supports_mlp(x[:, :, 0, 0], weight[:, :, 0, 0], weight[:, :, 0, 0])
    assert not kernels.supports_plan(unit(64, 32), unit(64, 32), 3)
    assert not kernels.supports_contrast(unit(64, 32), unit(64, 32), unit(64, 32))


REASONS = {
    "PSCO_KERNELS=off": "left out by PSCO_KERNELS=off",
    "CC=/nowhere/cc": "No such file or directory: '/nowhere/cc'",
    "CC=false": "false cannot compile them: exit code 1",
    "PSCO_KERNELS=--nonsense": "cc cannot compile them: ",
}


@pytest.mark.parametrize("setting", REASONS)
def test_doctor_says_why_there_are_no_kernels(setting):
    if "nonsense" in setting and shutil.which("cc") is None:
        pytest.skip("no compiler to be given nonsense")
    name, value = setting.split("=", 1)
    environment = {**os.environ, "CC": "cc", "PSCO_KERNELS": "", name: value}
    command = [sys.executable, "-m", "psco", "doctor"]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    (line,) = [line for line in done.stdout.splitlines() if " kernels " in line]
    assert line.startswith("absent")
    assert REASONS[setting] in line


@needs_kernels
def test_kernels_are_compiled_once_and_leave_nothing_else_behind(tmp_path):
    script = "from psco.ops.native import absence; print(absence())"
    environment = {**os.environ, "PSCO_NATIVE_DIR": str(tmp_path), "PSCO_KERNELS": ""}
    times = []
    for _ in range(2):
        command = [sys.executable, "-c", script]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60)
        assert done.stdout.strip() == "None", done.stderr
        (file,) = tmp_path.glob("*.so")
        assert {path.name for path in tmp_path.iterdir()} == {
            file.name,
            f"{file.name}.sha256",
            ".lock",
        }
        times.append(file.stat().st_mtime_ns)
    assert times[0] == times[1]


@needs_kernels
@pytest.mark.parametrize("flags", ["-march=haswell", "-march=x86-64"])
def test_kernels_of_narrower_vectors_agree_too(flags, tmp_path):
    if shutil.which("cc") is None or "x86_64" not in os.uname().machine:
        pytest.skip("flags for x86-64")
    tests = "a_block_is or first_block_is or head_is or plan_ranks or crops_are or by_the_kernel"
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-n", "0"]
    command += ["-k", f"({tests}) and not narrower", __file__]
    environment = {**os.environ, "PSCO_KERNELS": flags}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stdout[-2000:]
