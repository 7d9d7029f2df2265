"""ResNets: the names and shapes of torchvision, and gradients that checkpointing leaves alone."""

from __future__ import annotations

import copy
import io
from collections.abc import Iterator

import numpy as np
import pytest
import torch
from PIL import Image
from torch import nn

import psco
from psco.methods.momentum import MomentumTwin
from psco.networks import BACKBONES, output_width, resnet18, resnet50

Shapes = Iterator[tuple[str, tuple[int, ...]]]


def batch_norm(name: str, width: int) -> Shapes:
    for part in ("weight", "bias", "running_mean", "running_var"):
        yield f"{name}.{part}", (width,)
    yield f"{name}.num_batches_tracked", ()


def torchvision_shapes(blocks: tuple[int, ...], bottleneck: bool) -> Shapes:
    """Write down the state dict of torchvision's ResNet, without its classification layer."""
    yield "conv1.weight", (64, 3, 7, 7)
    yield from batch_norm("bn1", 64)
    channels = 64
    for stage, count in enumerate(blocks):
        width = 64 * 2**stage
        out = 4 * width if bottleneck else width
        for block in range(count):
            name = f"layer{stage + 1}.{block}"
            inputs = channels if block == 0 else out
            if bottleneck:
                convolutions = [(width, inputs, 1, 1), (width, width, 3, 3), (out, width, 1, 1)]
            else:
                convolutions = [(width, inputs, 3, 3), (width, width, 3, 3)]
            for number, shape in enumerate(convolutions, start=1):
                yield f"{name}.conv{number}.weight", shape
                yield from batch_norm(f"{name}.bn{number}", shape[0])
            if block == 0 and channels != out:
                yield f"{name}.downsample.0.weight", (out, inputs, 1, 1)
                yield from batch_norm(f"{name}.downsample.1", out)
        channels = out


@pytest.mark.parametrize(
    ("factory", "blocks", "bottleneck", "parameters"),
    [
        (resnet18, (2, 2, 2, 2), False, 11_176_512),
        (resnet50, (3, 4, 6, 3), True, 23_508_032),
    ],
)
def test_names_and_shapes_are_those_of_torchvision(factory, blocks, bottleneck, parameters):
    network = factory(3, 224)
    mine = {name: tuple(value.shape) for name, value in network.state_dict().items()}
    assert mine == dict(torchvision_shapes(blocks, bottleneck))
    assert sum(p.numel() for p in network.parameters()) == parameters


@pytest.mark.parametrize(
    ("factory", "giga"),
    [
        (resnet18, 1.81),  # multiply-adds of the published networks, in 10^9, less their last layer
        (resnet50, 4.09),
    ],
)
def test_the_arithmetic_of_an_image_is_as_published(factory, giga):
    network, counted = factory(3, 224).eval(), []

    def count(layer: nn.Conv2d, _inputs: object, output: torch.Tensor) -> None:
        counted.append(output[0].numel() * layer.weight[0].numel())

    for layer in network.modules():
        if isinstance(layer, nn.Conv2d):
            layer.register_forward_hook(count)
    with torch.no_grad():
        assert network(torch.zeros(1, 3, 224, 224)).shape[0] == 1
    assert sum(counted) / 1e9 == pytest.approx(giga, abs=0.01)


@pytest.mark.parametrize(("name", "width"), [("resnet18", 512), ("resnet50", 2048)])
@pytest.mark.parametrize(("channels", "size"), [(1, 28), (3, 64), (3, 84)])
def test_features_are_the_averages_of_the_last_map(name, width, channels, size):
    assert output_width(BACKBONES[name](channels, size), channels, size) == width


def test_the_stem_is_small_up_to_64_pixels_and_as_told():
    def stem(size, **options):
        network = resnet18(3, size, **options)
        return tuple(network.conv1.weight.shape[2:]), isinstance(network.maxpool, nn.MaxPool2d)

    assert stem(64) == ((3, 3), False)
    assert stem(65) == ((7, 7), True)
    assert stem(32, small_stem=False) == ((7, 7), True)
    assert stem(224, small_stem=True) == ((3, 3), False)


def test_the_stride_of_a_bottleneck_is_in_its_3x3_convolution():
    block = resnet50(3, 224).layer2[0]
    assert (block.conv1.stride, block.conv2.stride) == ((1, 1), (2, 2))


def test_convolutions_begin_with_the_variance_of_their_fan_out():
    torch.manual_seed(0)
    layer = resnet18(3, 32).layer3[0].conv2
    assert layer.weight.std().item() == pytest.approx((2 / (256 * 9)) ** 0.5, rel=0.01)


@pytest.mark.parametrize("factory", [resnet18, resnet50])
def test_with_zero_init_a_block_starts_as_its_shortcut(factory):
    network = factory(3, 32, zero_init_residual=True).eval()
    block = network.layer1[1]  # without a downsampling shortcut: the identity
    x = torch.rand(2, block.conv1.in_channels, 8, 8)
    assert torch.equal(block(x), x)
    assert not torch.equal(factory(3, 32).eval().layer1[1](x), x)


def test_the_imagenet_recipe_starts_with_zero_init_and_another_backbone_need_not_have_it():
    recipe = psco.load_recipe("imagenet")
    assert recipe.backbone.options["zero_init_residual"]
    small = psco.load_recipe("imagenet", ["backbone.name=resnet18"])
    assert small.backbone.options["zero_init_residual"]
    other = psco.load_recipe("imagenet", ["backbone.name=conv5"])
    assert other.backbone.name == "conv5"
    with pytest.raises(psco.InputError, match="zero_init"):
        psco.load_recipe("imagenet", ["backbone.name=conv5", "backbone.zero_init_residual=true"])


def test_the_network_computes_what_its_definition_says():
    """A slow twin of a whole ResNet-18, written with functions of its state dict alone."""
    torch.manual_seed(0)
    network = resnet18(3, 224).eval()
    for name, value in network.state_dict().items():
        if name.endswith(("running_mean", "running_var", "bias")):
            value.uniform_(0.5, 1.5)
    w, F = network.state_dict(), nn.functional

    def norm(x, name):
        mean, var = w[f"{name}.running_mean"], w[f"{name}.running_var"]
        scale = w[f"{name}.weight"] / (var + 1e-5).sqrt()
        shape = (1, -1, 1, 1)
        return (x - mean.view(shape)) * scale.view(shape) + w[f"{name}.bias"].view(shape)

    x = torch.randn(2, 3, 64, 64)
    y = F.conv2d(x, w["conv1.weight"], stride=2, padding=3)
    y = F.max_pool2d(norm(y, "bn1").relu(), 3, 2, 1)
    for stage in range(1, 5):
        for block in range(2):
            at, stride = f"layer{stage}.{block}", 2 if stage > 1 and block == 0 else 1
            z = F.conv2d(y, w[f"{at}.conv1.weight"], stride=stride, padding=1)
            z = F.conv2d(norm(z, f"{at}.bn1").relu(), w[f"{at}.conv2.weight"], padding=1)
            if f"{at}.downsample.0.weight" in w:
                y = F.conv2d(y, w[f"{at}.downsample.0.weight"], stride=stride)
                y = norm(y, f"{at}.downsample.1")
            y = (norm(z, f"{at}.bn2") + y).relu()
    torch.testing.assert_close(network(x), y.flatten(2).mean(2), rtol=1e-4, atol=1e-4)


# -------------------------------------------------------------------------- gradient checkpointing


@pytest.mark.parametrize("name", ["resnet18", "resnet50"])
@pytest.mark.parametrize("training", [True, False])
def test_checkpointing_changes_no_bit_of_gradients_and_statistics(name, training):
    torch.manual_seed(0)
    plain = BACKBONES[name](3, 32, small_stem=False).train(training)
    saving = copy.deepcopy(plain)
    saving.checkpointing = True
    for _ in range(2):
        x = torch.randn(4, 3, 32, 32)
        for network in (plain, saving):
            network(x).square().mean().backward()
    for (label, one), other in zip(plain.named_parameters(), saving.parameters(), strict=True):
        assert torch.equal(one.grad, other.grad), label
    for (label, one), other in zip(plain.named_buffers(), saving.buffers(), strict=True):
        assert torch.equal(one, other), label
    assert int(saving.layer1[0].bn1.num_batches_tracked) == (2 if training else 0)


def test_checkpointing_keeps_less_for_the_backward_pass():
    def kept(checkpointing: bool) -> int:
        sizes = []
        network = resnet18(3, 32, checkpointing=checkpointing)

        def keep(tensor: torch.Tensor) -> torch.Tensor:
            sizes.append(tensor.numel())
            return tensor

        with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
            network(torch.randn(2, 3, 32, 32))
        return sum(sizes)

    assert kept(True) < 0.4 * kept(False)


def test_a_failure_in_the_backward_pass_leaves_the_statistics_in_their_place():
    network = resnet18(3, 32, checkpointing=True)
    buffers = list(network.buffers())
    features = network(torch.randn(2, 3, 32, 32))

    def fail(*_: object) -> None:
        raise KeyboardInterrupt

    handle = network.layer2[0].conv1.register_forward_hook(fail)
    with pytest.raises(KeyboardInterrupt):
        features.sum().backward()
    handle.remove()
    assert all(one is other for one, other in zip(buffers, network.buffers(), strict=True))


def test_the_momentum_network_of_a_checkpointed_backbone_keeps_nothing():
    twin = MomentumTwin(resnet18(3, 32, checkpointing=True))
    assert not twin(torch.randn(2, 3, 32, 32)).requires_grad


# ------------------------------------------------------------------------------ the imagenet recipe


def test_the_imagenet_recipe_is_that_of_the_paper():
    recipe = psco.load_recipe("imagenet")
    method, train = recipe.method.options, recipe.train
    assert recipe.backbone.name == "resnet50"
    assert recipe.image.size == 224
    assert (train.batch_size, train.epochs, train.learning_rate) == (256, 200, 0.03)
    assert train.weight_decay == 1e-4
    assert (method["queue_size"], method["momentum"], method["shots"]) == (65536, 0.999, 16)
    assert method["temperature"] == method["moco_temperature"] == 0.2
    assert "blur" in recipe.views.view_a
    assert "blur" not in recipe.views.view_b


@pytest.fixture(scope="module")
def imagenet(tmp_path_factory: pytest.TempPathFactory):
    """Give a folder like ImageNet's with 48 small JPEG files in 4 classes."""
    root = tmp_path_factory.mktemp("data")
    random = np.random.default_rng(0)
    for place in range(48):
        folder = root / "imagenet" / "train" / f"n0144{place % 4:04}"
        folder.mkdir(parents=True, exist_ok=True)
        pixels = random.integers(0, 256, (40, 50, 3), dtype=np.uint8)
        content = io.BytesIO()
        Image.fromarray(pixels).save(content, "JPEG")
        (folder / f"{folder.name}_{place}.JPEG").write_bytes(content.getvalue())
    return root


@pytest.mark.parametrize(("auxiliary", "steps"), [("moco", 20), ("byol", 3)])
def test_the_imagenet_recipe_runs_in_small(imagenet, tmp_path, auxiliary, steps):
    small = [
        "image.size=32",
        "image.source_size=36",
        "backbone={name: resnet18, checkpointing: true, small_stem: false}",
        "heads={hidden: 32, out: 16}",
        "method.queue_size=64",
        f"method.auxiliary={auxiliary}",
        "train.batch_size=8",
        "train.accumulate=2",
        f"train.steps={steps}",
    ]
    run = psco.pretrain(
        "imagenet", root=imagenet, out=tmp_path / "run", overrides=small, workers=0, progress=False
    )
    assert run.finished
    assert run.recipe.method.options["shots"] == 16
    assert all(np.isfinite(list(row.values())).all() for row in run.metrics)
    assert {auxiliary, "psco"} <= set(run.metrics[0])
    assert psco.load(run.folder).features(np.zeros((2, 36, 36, 3), np.uint8)).shape == (2, 512)
