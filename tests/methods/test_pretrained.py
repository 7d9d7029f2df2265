"""Given weights as a method: whose features, under which rule, and what happens without them."""

from __future__ import annotations

import json

import pytest
import torch
from safetensors.torch import save_file

import psco as package
from psco.networks import conv4
from psco.training.checkpoint import read_environment

SMALL = ["backbone.width=8", "heads={hidden: 32, out: 16}"]


@pytest.fixture
def network() -> torch.nn.Module:
    """Return a small backbone with weights that no seed of a run gives."""
    torch.manual_seed(1234)
    return conv4(1, 28, width=8).eval()


@pytest.mark.parametrize("name", ["w.pth", "w.safetensors"])
def test_a_command_makes_a_run_of_a_file_of_weights_and_tests_it_by_a_linear_probe(
    psco, tmp_path, network, name
):
    state = {**network.state_dict(), "fc.weight": torch.ones(3, 32)}
    save_file(state, tmp_path / name) if name.endswith("s") else torch.save(state, tmp_path / name)
    run = tmp_path / "run"
    words = ["pretrain", "glyphs", "--method", "pretrained", "--init", tmp_path / name, "-o", run]
    done = psco(*words, "--set", *SMALL)
    assert done.returncode == 0, done.stderr
    assert "not used: fc.weight" in done.stderr
    assert "nothing to train" in done.stdout
    loaded = package.load(run).method.backbone.state_dict()
    assert all(torch.equal(loaded[key], value) for key, value in network.state_dict().items())
    assert "init_sha256" in read_environment(run)

    done = psco("evaluate", run, "--data", "glyphs", "--tasks", 3, "--json")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["results"][0]["rule"] == "linear"


def test_to_resume_it_keeps_the_weights(tmp_path, network, few_glyphs):
    torch.save(network.state_dict(), tmp_path / "w.pth")
    for _ in range(2):
        run = package.pretrain(
            few_glyphs,
            out=tmp_path / "run",
            recipe="glyphs",
            method="pretrained",
            init=tmp_path / "w.pth",
            overrides=SMALL,
            resume=True,
            progress=False,
        )
        loaded = package.load(run.folder).method.backbone.state_dict()
        assert all(torch.equal(loaded[key], value) for key, value in network.state_dict().items())


def test_without_weights_it_is_an_error_of_one_line_and_writes_nothing(psco, tmp_path):
    done = psco("pretrain", "glyphs", "--method", "pretrained", "-o", tmp_path / "run")
    assert done.returncode == 2
    assert done.stderr.count("\n") == 1
    assert "method 'pretrained' needs weights, got none; --init takes" in done.stderr
    assert not (tmp_path / "run").exists()


def test_a_data_set_that_only_names_the_recipe_is_not_read(psco, tmp_path, network):
    torch.save(network.state_dict(), tmp_path / "w.pth")
    words = ["pretrain", "omniglot", "--method", "pretrained", "--init", tmp_path / "w.pth"]
    nowhere = tmp_path / "no-data"
    done = psco(*words, "-o", tmp_path / "run", "--root", nowhere, "--set", *SMALL)
    assert done.returncode == 0, done.stderr
    assert package.load(tmp_path / "run").trained_on == "omniglot"
