"""Embedding images: batches, views at test, and that an image does not depend on the others."""

from __future__ import annotations

import json

import numpy as np
import pytest
import torch
import torch.nn.functional as F

import psco
from psco.errors import InputError
from psco.evaluation.rules import Embeddings, join_embeddings
from psco.recipes.build import build_views
from psco.recipes.recipe import load_recipe, recipe_names
from psco.views import VIEW_PARTS, SameOnBatchGenerator, to_batch

HANDWRITING = "{affine: {}, elastic: {}, stroke: {}}"


@pytest.fixture
def encoder(tiny):
    """Give a network with three views at test."""
    views = [f"views.view_b={HANDWRITING}", "views.at_test=3"]
    return psco.Encoder.untrained(load_recipe("glyphs", [*tiny, *views]))


def assert_same(one: Embeddings, other: Embeddings) -> None:
    for name in ("features", "support", "query"):
        torch.testing.assert_close(getattr(one, name), getattr(other, name), rtol=0, atol=2e-6)


def test_views_at_test_are_off_unless_asked_for_and_their_number_is_checked(tiny):
    assert load_recipe("omniglot").views.at_test == 0
    with pytest.raises(InputError, match=r"at_test.*-1"):
        load_recipe("glyphs", [*tiny, "views.at_test=-1"])


@torch.no_grad()
def test_views_at_test_are_averaged_with_the_image_itself(encoder, tiny, pictures):
    plain = psco.Encoder(encoder.method, load_recipe("glyphs", tiny))
    view, generator = build_views(encoder.recipe).view_b, SameOnBatchGenerator().manual_seed(0)
    looks = [encoder.method.backbone(view(to_batch(pictures), generator)) for _ in range(3)]
    looks.insert(0, plain.features(pictures))
    found = encoder.embed(pictures)
    torch.testing.assert_close(found.features, sum(looks) / 4)
    for head, units in (("support_head", found.support), ("query_head", found.query)):
        total = sum(getattr(encoder.method, head)(features) for features in looks)
        torch.testing.assert_close(units, F.normalize(total, dim=1))
    assert not torch.allclose(found.query, plain.embed(pictures).query, atol=1e-3)


def test_an_image_is_embedded_the_same_alone_in_any_batch_and_in_any_order(encoder, pictures):
    whole = encoder.embed(pictures)
    assert_same(join_embeddings([encoder.embed(pictures[n : n + 1]) for n in range(60)]), whole)
    order = torch.randperm(60, generator=torch.Generator().manual_seed(0))
    assert_same(encoder.embed(pictures[order.numpy()]), whole[order])


def test_classifiers_see_the_views_at_test_too(encoder, pictures):
    pictures = pictures[:, :16, :16]  # of the size that the recipe asks for
    labels = np.arange(60) % 3
    model = psco.FewShotClassifier(encoder).fit(list(pictures), labels)
    centres = [encoder.embed_support(pictures[labels == label]).sum(dim=0) for label in range(3)]
    torch.testing.assert_close(
        torch.as_tensor(model.prototypes_), F.normalize(torch.stack(centres), dim=1)
    )


@pytest.mark.parametrize("name", list(VIEW_PARTS))
def test_every_part_can_change_all_images_alike(name, pictures):
    options = {"fill": "noise"} if name == "erase" else {}
    part = VIEW_PARTS[name](**VIEW_PARTS.options(name, options))
    channels = 3 if name in ("jitter", "grey") else 1
    one = torch.from_numpy(pictures[:1, :, :, 0]).expand(20, channels, 20, 20) / 255
    alike = [part(one, 16, SameOnBatchGenerator().manual_seed(seed)) for seed in range(8)]
    assert all((batch == batch[:1]).all() for batch in alike)
    assert any(not batch.equal(alike[0]) for batch in alike)
    each = part(one, 16, torch.Generator().manual_seed(0))
    assert (each != each[:1]).any()


def test_results_state_how_many_views_were_averaged(encoder, few_glyphs):
    result = psco.evaluate(encoder, few_glyphs, tasks=3)
    assert result.views_at_test == 3
    assert result.how == "prototype (inductive, 3 views at test)"


def test_another_number_of_views_can_be_tried_on_a_finished_run(few_glyphs, tiny, tmp_path, psco):
    import psco as library

    library.pretrain(few_glyphs, out=tmp_path / "run", overrides=[*tiny, "train.steps=1"])
    plain, several = library.load(tmp_path / "run"), library.load(tmp_path / "run", views_at_test=2)
    assert [one.recipe.views.at_test for one in (plain, several)] == [0, 2]
    with pytest.raises(InputError, match=r"at_test.*-2"):
        library.load(tmp_path / "run", views_at_test=-2)
    words = ["--data", "glyphs", "--split", "val", "--tasks", 20, "--json"]
    done = psco("evaluate", tmp_path / "run", *words, "--views-at-test", 2)
    assert done.returncode == 0, done.stderr
    (row,) = json.loads(done.stdout)["results"]
    images = library.load_dataset("glyphs", "val", size=16)
    assert row["views_at_test"] == 2
    assert row["mean"] == library.evaluate(several, images, tasks=20).mean


@torch.no_grad()
def test_with_test_crop_the_network_sees_the_centre_of_the_source(tiny):
    pixels = np.random.default_rng(0).integers(0, 256, (3, 24, 24, 1), dtype=np.uint8)
    settings = load_recipe("glyphs", [*tiny, "image.source_size=24", "image.test_crop=true"])
    encoder = psco.Encoder.untrained(settings)  # size 16
    centre = np.ascontiguousarray(pixels[:, 4:20, 4:20])
    plain = psco.Encoder(encoder.method, load_recipe("glyphs", tiny))
    assert_same(encoder.embed(pixels), plain.embed(centre))
    torch.testing.assert_close(encoder.pixels(pixels).features, plain.pixels(centre).features)
    assert not torch.allclose(encoder.features(pixels), plain.features(pixels), atol=1e-3)


def test_images_of_any_size_are_brought_to_the_source_size_before_the_crop(tiny):
    settings = load_recipe("glyphs", [*tiny, "image.source_size=24", "image.test_crop=true"])
    encoder = psco.Encoder.untrained(settings)
    small = np.random.default_rng(0).integers(0, 256, (3, 12, 12, 1), dtype=np.uint8)
    twice = small.repeat(4, axis=1).repeat(4, axis=2)  # 48 px: each pixel 4 x 4
    assert encoder.embed(small).features.shape == encoder.embed(twice).features.shape


def test_only_recipes_whose_paper_says_so_crop_at_test():
    crops = {name for name in recipe_names() if load_recipe(name).image.test_crop}
    assert crops == {"imagenet", "miniimagenet-uml"}
    image = load_recipe("imagenet").image
    assert (image.source_size, image.size) == (256, 224)
    with pytest.raises(InputError, match="test_crop requires source_size >= size, got 16 and 28"):
        load_recipe("glyphs", ["image.test_crop=true", "image.source_size=16"])
