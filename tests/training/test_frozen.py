"""Heads on a frozen backbone: cached features, exact resume, and the whole network in the run."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

import psco
from psco.data import ImageSet
from psco.errors import InputError
from psco.networks import FrozenBackbone
from psco.recipes.build import build_method, build_views
from psco.training.feed import Feed
from psco.training.frozen import CachedViews, compute_features
from psco.training.loop import Loop
from psco.views import to_batch


@pytest.fixture(autouse=True)
def own_cache(tmp_path, monkeypatch) -> Path:
    monkeypatch.setenv("PSCO_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache" / "features"


@pytest.fixture
def settings(tiny) -> list[str]:
    return [*tiny, "train.freeze=backbone", "train.frozen_views=4", "train.average_last=0.4"]


@pytest.fixture
def many() -> np.ndarray:
    """300 images, which fill two files of features."""
    return np.random.default_rng(0).integers(0, 256, (300, 20, 20, 1), dtype=np.uint8)


def train(images, out, settings, **options):
    options = {"recipe": "glyphs", "overrides": settings, "progress": False, **options}
    return psco.pretrain(images, out=out, **options)


def features_of(images, settings):
    recipe = psco.load_recipe("glyphs", settings)
    torch.manual_seed(0)
    backbone = build_method(recipe).backbone
    pair = build_views(recipe)
    return compute_features(ImageSet(images), backbone, pair, recipe, progress=False), backbone


def stamps(folder: Path) -> dict[str, int]:
    return {file.name: file.stat().st_mtime_ns for file in folder.iterdir()}


def test_only_the_heads_learn_and_the_run_holds_the_whole_network(tmp_path, many, settings):
    initial = features_of(many, settings)[1].state_dict()
    train(many, tmp_path / "run", settings)
    stored = load_file(tmp_path / "run" / "model.safetensors")
    for name, value in initial.items():
        if name != "centre":
            assert torch.equal(stored[f"backbone.{name}"], value), name
    encoder = psco.load(tmp_path / "run")
    torch.manual_seed(0)
    untrained = build_method(encoder.recipe)
    trained = encoder.method.projector[0].weight
    assert not torch.equal(trained, untrained.projector[0].weight)
    assert encoder.embed(many[:5]).query.shape == (5, 16)


def test_the_saved_network_centres_features_on_the_mean_of_the_cached_ones(
    tmp_path, many, settings
):
    train(many, tmp_path / "run", settings)
    cached, backbone = features_of(many, settings)
    encoder = psco.load(tmp_path / "run", views_at_test=0)
    mean = torch.from_numpy(cached[np.arange(300)].astype(np.float64)).mean(dim=(0, 1)).float()
    torch.testing.assert_close(encoder.method.backbone.centre, mean)
    with torch.no_grad():
        raw = backbone.network(encoder._plain_view(to_batch(many)))
    torch.testing.assert_close(encoder.features(many), raw - mean)


def test_a_run_that_was_stopped_ends_with_the_same_weights(tmp_path, many, settings):
    train(many, tmp_path / "whole", settings)

    def stop(row):
        if row["step"] == 6:
            os.kill(os.getpid(), 15)

    part = train(many, tmp_path / "part", settings, loggers=[stop])
    assert not part.finished
    train(many, tmp_path / "part", settings, resume=True)
    whole, resumed = (
        load_file(tmp_path / name / "model.safetensors") for name in ("whole", "part")
    )
    assert whole.keys() == resumed.keys()
    assert all(torch.equal(whole[name], resumed[name]) for name in whole)


def test_a_run_killed_while_it_computes_features_continues_with_the_next_file(
    tmp_path, many, settings, own_cache, monkeypatch
):
    whole = features_of(many, settings)[0][np.arange(300)]
    files = stamps(own_cache)
    last = max(files, key=lambda name: files[name])
    (own_cache / last).unlink()
    (own_cache / f".{last[:-4]}.1-2.part.npy").write_bytes(b"half a file")
    again = features_of(many, settings)[0][np.arange(300)]
    assert np.array_equal(whole, again)
    kept = files.keys() - {last}
    assert {name: files[name] for name in kept}.items() <= stamps(own_cache).items()


def test_features_are_computed_again_only_for_images_that_changed(many, settings, own_cache):
    features_of(many, settings)
    before = stamps(own_cache)
    features_of(many, settings)
    assert stamps(own_cache) == before
    many[299, 0, 0] ^= 255
    features_of(many, settings)
    after = stamps(own_cache)
    assert len(after) == len(before) + 1
    assert before.items() <= after.items()


@pytest.mark.parametrize(
    "change", ["train.seed=1", "train.frozen_views=2", "views.view_a={flip: {}}", "image.std=[0.5]"]
)
def test_other_settings_lead_to_other_features(many, settings, own_cache, change):
    features_of(many[:100], settings)
    features_of(many[:100], [*settings, change])
    assert len(stamps(own_cache)) == 2


def test_a_damaged_file_is_computed_again(many, settings, own_cache):
    whole = features_of(many[:50], settings)[0][np.arange(50)]
    (file,) = own_cache.iterdir()
    file.write_bytes(file.read_bytes()[:200])
    assert np.array_equal(features_of(many[:50], settings)[0][np.arange(50)], whole)


def test_features_do_not_depend_on_the_number_of_threads(many, settings, own_cache):
    one = features_of(many, settings)[0][np.arange(300)]
    for file in own_cache.iterdir():
        file.unlink()
    threads = torch.get_num_threads()
    try:
        torch.set_num_threads(3)
        assert np.array_equal(features_of(many, settings)[0][np.arange(300)], one)
    finally:
        torch.set_num_threads(threads)


def test_two_views_come_from_the_two_kinds_of_cached_views():
    features = torch.arange(6.0).repeat(50, 1)[..., None].repeat(1, 1, 2)  # (50, 6, 2)
    view_a, view_b = CachedViews()(features, torch.Generator().manual_seed(0))
    assert set(view_a[:, 0].tolist()) == {0.0, 2.0, 4.0}
    assert set(view_b[:, 0].tolist()) == {1.0, 3.0, 5.0}


def test_a_frozen_backbone_is_shared_with_the_ema_copy_and_keeps_its_statistics(settings):
    method = build_method(psco.load_recipe("glyphs", settings))
    assert isinstance(method.backbone, FrozenBackbone)
    assert method.ema.network.backbone is method.backbone
    method.train()
    assert not any(module.training for module in method.backbone.network.modules())
    assert not any(p.requires_grad for p in method.backbone.parameters())


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ("method={name: maml}", "'maml' trains on tasks"),
        ("method={name: random}", "'random' trains nothing"),
    ],
)
def test_what_cannot_be_combined_with_a_frozen_backbone(
    tmp_path, few_glyphs, settings, change, problem
):
    with pytest.raises(InputError, match=f"{problem}.*--set train.freeze=null"):
        train(few_glyphs, tmp_path / "run", [*settings, change])
    assert not (tmp_path / "run").exists()


def test_views_that_are_functions_cannot_be_cached(tmp_path, many, settings):
    view = lambda images: images.float()[:, :, :16, :16]  # noqa: E731
    with pytest.raises(InputError, match="views that are functions cannot be cached"):
        train(many, tmp_path / "run", settings, views=(view, view))


def test_the_time_of_the_features_counts_and_leaves_a_fifth_to_the_heads(tmp_path, many, settings):
    timed = [*settings, "train={minutes: 10, batch_size: 16}"]
    recipe = psco.load_recipe("glyphs", timed)
    method = build_method(recipe)
    feed = Feed(ImageSet(many), 16, 0)
    loop = Loop(method, build_views(recipe), feed, recipe, tmp_path)
    loop.count_preparation(120.0)
    assert loop.done == pytest.approx(0.2, abs=0.01)
    loop.count_preparation(3600.0)
    assert loop.done < 1
