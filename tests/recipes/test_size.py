"""The size of a network is known, and limited, before memory is allocated."""

from __future__ import annotations

import pytest
import torch

from psco.errors import InputError
from psco.recipes.build import build_method
from psco.recipes.recipe import load_recipe
from psco.recipes.size import check_size


@pytest.mark.parametrize(
    ("changes", "complaint"),
    [
        (["backbone.width=1000000"], r"takes [\d,]+ MB, and the limit is 1,000 MB; set PSCO_MAX"),
        (["method.queue_size=2000000000"], "the limit is 1,000 MB"),
        (["heads={hidden: 1000000, out: 1000000}"], "the limit is 1,000 MB"),
        (["backbone.width=-3"], "makes no network: .*negative"),
        (["backbone.width=0"], "makes no network|does not accept"),
    ],
)
def test_a_network_that_cannot_be_or_is_too_large_is_refused(changes, complaint):
    with pytest.raises(InputError, match=complaint):
        build_method(load_recipe("glyphs", changes))


def test_the_limit_can_be_set(monkeypatch):
    recipe = load_recipe("glyphs")
    monkeypatch.setenv("PSCO_MAX_NETWORK_MB", "1")
    with pytest.raises(InputError, match="the limit is 1 MB"):
        build_method(recipe)
    monkeypatch.setenv("PSCO_MAX_NETWORK_MB", "many")
    with pytest.raises(InputError, match="PSCO_MAX_NETWORK_MB must be a whole number, got 'many'"):
        build_method(recipe)
    monkeypatch.setenv("PSCO_MAX_NETWORK_MB", "")
    build_method(recipe)


def test_measuring_a_network_draws_no_random_numbers():
    recipe = load_recipe("glyphs")
    torch.manual_seed(0)
    expected = torch.rand(1)
    torch.manual_seed(0)
    check_size(lambda: torch.nn.Linear(3, int(torch.rand(4).shape[0])))
    check_size(lambda: build_method(recipe))
    assert torch.equal(torch.rand(1), expected)


@pytest.mark.parametrize("name", ["hf-hub:owner/model", "local-dir:/tmp", "../x", ""])
def test_a_name_cannot_make_timm_fetch_from_a_network(name):
    with pytest.raises(InputError, match="the name of a timm model must have letters"):
        build_method(load_recipe("glyphs", [f"backbone={{name: 'timm:{name}'}}"]))
