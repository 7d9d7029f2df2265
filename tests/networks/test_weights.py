"""Initial weights: files of torchvision, timm and others, earlier runs, and what can be wrong."""

from __future__ import annotations

import copy
import pickle
import sys

import pytest
import torch
import yaml
from PIL import Image
from safetensors.torch import save_file
from torch import nn

import psco
from psco.files.checksums import hash_file
from psco.networks import BACKBONES, load_backbone, resnet18
from psco.recipes.build import build_method
from psco.training.checkpoint import load_resume, read_environment


@pytest.fixture(scope="module")
def weights() -> dict[str, torch.Tensor]:
    """Give the state dict of a ResNet-18 as torchvision saves it, its last layer included."""
    torch.manual_seed(7)
    state = resnet18(3, 224).state_dict()
    return {**state, "fc.weight": torch.randn(1000, 512), "fc.bias": torch.randn(1000)}


def is_loaded(network: nn.Module, weights: dict[str, torch.Tensor]) -> bool:
    return all(torch.equal(value, weights[name]) for name, value in network.state_dict().items())


def beginning(prefix: str, weights: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    return {prefix + name: value for name, value in weights.items()}


@pytest.mark.parametrize("name", ["w.safetensors", "w.pth", "w.pt", "w.pth.tar"])
def test_every_kind_of_file_is_read_and_its_last_layer_named(tmp_path, weights, name):
    path = tmp_path / name
    save_file(weights, path) if name.endswith("safetensors") else torch.save(weights, path)
    network = resnet18(3, 224)
    said = load_backbone(network, path)
    assert is_loaded(network, weights)
    assert said == f"{path}: 120 tensors of the backbone loaded; not used: fc.bias, fc.weight"


@pytest.mark.parametrize(
    "wrap",
    [
        lambda w: {"state_dict": w, "epoch": 3, "arch": "resnet18"},
        lambda w: {"model": beginning("module.", w)},
        lambda w: beginning("backbone.", w),
        lambda w: beginning("_orig_mod.encoder.", w),
        lambda w: {"epoch": 1, "state_dict": beginning("module.encoder_q.", w)},
    ],
)
def test_what_wraps_the_backbone_is_taken_off(tmp_path, weights, wrap):
    torch.save(wrap(weights), tmp_path / "w.pth")
    network = resnet18(3, 224)
    load_backbone(network, tmp_path / "w.pth")
    assert is_loaded(network, weights)


def test_of_an_online_and_an_averaged_network_the_online_one_is_taken(tmp_path, weights):
    averaged = {name: torch.zeros_like(value) for name, value in weights.items()}
    both = beginning("encoder_k.", averaged) | beginning("encoder_q.", weights)
    torch.save({"state_dict": beginning("module.", both)}, tmp_path / "w.pth")
    network = resnet18(3, 224)
    said = load_backbone(network, tmp_path / "w.pth")
    assert is_loaded(network, weights)
    assert "not used: fc.bias, fc.weight, module.encoder_k.bn1.bias" in said
    assert said.endswith("more")


def test_files_from_before_the_batch_counters_existed_are_read(tmp_path, weights):
    old = {n: v for n, v in weights.items() if not n.endswith("num_batches_tracked")}
    torch.save(old, tmp_path / "w.pth", _use_new_zipfile_serialization=False)
    network = resnet18(3, 224)
    load_backbone(network, tmp_path / "w.pth")
    assert is_loaded(network, weights)


# ------------------------------------------------------------------------------------ misfits


def refused(network: nn.Module, path, message: str, kind: type = psco.InputError) -> None:
    """Check that weights are refused in one line and the network is left as it was."""
    before = copy.deepcopy(network.state_dict())
    with pytest.raises(kind, match=message) as caught:
        load_backbone(network, path)
    assert "\n" not in str(caught.value)
    assert str(path) in str(caught.value)
    assert is_loaded(network, before)


def test_a_missing_tensor_is_named(tmp_path, weights):
    less = {n: v for n, v in weights.items() if not n.startswith("layer4.1.")}
    torch.save(less, tmp_path / "w.pth")
    refused(resnet18(3, 224), tmp_path / "w.pth", "lacks layer4.1.conv1.weight, .* and 4 more")


def test_the_weights_of_another_network_are_refused(tmp_path, weights):
    torch.save(weights, tmp_path / "w.pth")
    refused(psco.conv4(3, 84), tmp_path / "w.pth", "lacks 0.weight, .*choose the backbone")
    refused(BACKBONES["resnet50"](3, 224), tmp_path / "w.pth", "lacks layer1.0.conv3.weight")


def test_the_stem_of_other_image_sizes_says_what_to_set(tmp_path, weights):
    torch.save(weights, tmp_path / "large.pth")
    message = r"conv1.weight is \(64, 3, 7, 7\) .* --set backbone.small_stem=false"
    refused(resnet18(3, 32), tmp_path / "large.pth", message)
    save_file(resnet18(3, 32).state_dict(), tmp_path / "small.safetensors")
    message = r"conv1.weight is \(64, 3, 3, 3\) .* --set backbone.small_stem=true"
    refused(resnet18(3, 224), tmp_path / "small.safetensors", message)


def test_colour_weights_for_grey_images_say_what_to_set(tmp_path, weights):
    torch.save(weights, tmp_path / "w.pth")
    refused(resnet18(1, 224), tmp_path / "w.pth", "--set image.channels=3")


def test_another_width_is_refused(tmp_path):
    torch.save(psco.conv4(1, 28, width=8).state_dict(), tmp_path / "w.pth")
    refused(psco.conv4(1, 28), tmp_path / "w.pth", r"0.weight is \(8, 1, 3, 3\) in the file")


class Harm:
    """What a file must not be able to do."""

    def __reduce__(self):
        return print, ("harm",)


def test_a_file_that_would_run_code_is_refused(tmp_path, capsys):
    torch.save({"conv1.weight": Harm()}, tmp_path / "new.pth")
    (tmp_path / "old.pth").write_bytes(pickle.dumps(Harm()))
    for name in ("new.pth", "old.pth"):
        refused(resnet18(3, 32), tmp_path / name, "holds more than weights, or is damaged")
    assert "harm" not in capsys.readouterr().out


@pytest.mark.parametrize("name", ["w.safetensors", "w.pth"])
def test_a_file_cut_short_is_reported(tmp_path, weights, name):
    path = tmp_path / name
    save_file(weights, path) if name.endswith("safetensors") else torch.save(weights, path)
    content = path.read_bytes()
    for end in (0, 100, len(content) // 2):
        path.write_bytes(content[:end])
        refused(resnet18(3, 224), path, "damaged or cut short|damaged;", psco.PscoError)


def test_a_file_that_holds_something_else_is_refused(tmp_path):
    torch.save([torch.zeros(1)], tmp_path / "w.pth")
    refused(resnet18(3, 32), tmp_path / "w.pth", "must hold tensors by name, got a list")


# --------------------------------------------------------------------------------------- runs


def train(pictures, out, tiny, **options):
    options = {"recipe": "glyphs", "overrides": tiny, "progress": False, **options}
    return psco.pretrain(pictures, out=out, **options)


def test_a_run_begins_with_the_backbone_of_another_and_so_does_its_ema_copy(
    pictures, tmp_path, tiny
):
    first = train(pictures, tmp_path / "first", tiny, seed=3).folder
    recipe = psco.load_recipe("glyphs", [*tiny, f"init={first}"])
    method = build_method(recipe, init=True)
    wanted = psco.load(first).method.backbone.state_dict()
    assert is_loaded(method.backbone, wanted)
    assert is_loaded(method.ema.network.backbone, wanted)
    assert not is_loaded(build_method(recipe).backbone, wanted)


@pytest.mark.parametrize(
    ("file", "unused"),
    [("", "predictor"), ("model.safetensors", "predictor"), ("resume.pt", "ema")],
)
def test_a_new_run_says_what_it_has_loaded_and_notes_it(
    pictures, tmp_path, tiny, capsys, file, unused
):
    first = train(pictures, tmp_path / "first", tiny, steps=2).folder
    run = train(pictures, tmp_path / "second", tiny, init=first / file, steps=2)
    source = first / (file or "model.safetensors")
    said = f"note: {source}: 24 tensors of the backbone loaded; not used: {unused}."
    assert said in capsys.readouterr().err
    assert run.recipe.init == str(first / file)
    assert read_environment(run.folder)["init_sha256"] == hash_file(source)


def test_a_resumed_run_needs_its_initial_weights_no_more(pictures, tmp_path, tiny):
    torch.save(psco.conv4(1, 16, width=8).state_dict(), tmp_path / "w.pth")
    options = {"init": tmp_path / "w.pth", "checkpoint_steps": 4}
    train(pictures, tmp_path / "whole", tiny, **options)

    def fail(row) -> None:
        if row["step"] == 6:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        train(pictures, tmp_path / "parts", tiny, loggers=[fail], **options)
    (tmp_path / "w.pth").unlink()
    psco.pretrain(pictures, out=tmp_path / "parts", resume=True, progress=False)
    one, other = (load_resume(tmp_path / name)["method"] for name in ("whole", "parts"))
    assert all(torch.equal(one[name], other[name]) for name in one)


def test_initial_weights_that_do_not_fit_or_exist_write_nothing(pictures, tmp_path, tiny):
    torch.save(psco.conv4(1, 16, width=4).state_dict(), tmp_path / "w.pth")
    for init, message in {
        tmp_path / "w.pth": "choose the backbone that it is for",
        tmp_path / "none.pth": "there are no initial weights '.*none.pth'; --init takes",
        tmp_path: "there are no initial weights '.*model.safetensors'",
    }.items():
        with pytest.raises(psco.InputError, match=message):
            train(pictures, tmp_path / "run", tiny, init=init)
    assert not (tmp_path / "run").exists()


def test_the_command_line_takes_initial_weights(psco, tmp_path):
    path = tmp_path / "weights: a [strange] name.pth"
    said = psco("pretrain", "glyphs", "--init", path, "--print-config")
    assert yaml.safe_load(said.stdout)["init"] == str(path)
    (tmp_path / "images").mkdir()
    for shade in (0, 99, 255):
        Image.new("L", (90, 90), shade).save(tmp_path / "images" / f"{shade}.png")
    options = ["--init", path, "--out", tmp_path / "run", "--set", "train.batch_size=2"]
    refused = psco("pretrain", tmp_path / "images", *options)
    assert refused.returncode == 2
    assert "there are no initial weights" in refused.stderr.splitlines()[-1]
    assert not (tmp_path / "run").exists()


# --------------------------------------------------------------------------------------- timm

TIMM = """
from torch import nn

def create_model(name, pretrained, num_classes, in_chans):
    if name != "resnet26":
        raise RuntimeError(f"Unknown model ({name})")
    layers = [nn.Conv2d(in_chans, 8, 3), nn.AdaptiveAvgPool2d(1), nn.Flatten()]
    network = nn.Sequential(*layers) if num_classes == 0 else None
    if pretrained:
        nn.init.ones_(network[0].weight)
    return network
"""


@pytest.fixture
def timm(tmp_path, monkeypatch) -> None:
    """Put a small module with the face of timm where it would be imported from."""
    (tmp_path / "stub").mkdir()
    (tmp_path / "stub" / "timm.py").write_text(TIMM)
    monkeypatch.syspath_prepend(tmp_path / "stub")
    monkeypatch.delitem(sys.modules, "timm", raising=False)
    yield
    sys.modules.pop("timm", None)


def test_a_model_of_timm_trains_and_its_weights_count_at_the_beginning_only(
    pictures, tmp_path, tiny, timm
):
    backbone = "backbone={name: 'timm:resnet26', pretrained: true}"
    run = train(pictures, tmp_path / "run", [*tiny, backbone], steps=2)
    assert run.recipe.backbone.options == {"pretrained": True}
    assert psco.load(run.folder).features(pictures).shape == (60, 8)
    ones = [build_method(run.recipe, init=init).backbone[0].weight.eq(1) for init in (True, False)]
    assert ones[0].all()
    assert not ones[1].any()


def test_pretrained_weights_of_timm_need_no_file(pictures, tmp_path, tiny, timm):
    backbone = "backbone={name: 'timm:resnet26', pretrained: true}"
    changes = [*tiny, "method={name: pretrained}", backbone]
    run = train(pictures, tmp_path / "run", changes)
    assert psco.load(run.folder).method.backbone[0].weight.eq(1).all()


def test_an_unknown_model_or_option_of_timm_is_refused(timm):
    with pytest.raises(psco.InputError, match=r"timm cannot create 'x': Unknown model \(x\); timm"):
        BACKBONES["timm:x"](3, 32)
    with pytest.raises(psco.InputError, match="unknown option of backbone 'timm:x' 'pretraned'"):
        BACKBONES.options("timm:x", {"pretraned": True})


def test_without_timm_the_command_that_installs_it_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "timm", None)  # an import raises ImportError
    with pytest.raises(
        psco.InputError, match=r"timm cannot be imported .*pip install -e '\.\[vision\]'"
    ):
        BACKBONES["timm:resnet26"](3, 32)
