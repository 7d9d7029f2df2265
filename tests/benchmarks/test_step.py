"""What is measured: synthetic images, counted operations, and loops equal to the batched rules."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from steps import run_loss
from torch.utils.flop_counter import FlopCounterMode

from benchmarks.speed.limit import gemm_speed, step_operations
from benchmarks.speed.settings import choose_settings
from benchmarks.speed.tasks import (
    adapt_loop,
    first_tasks,
    make_heads,
    make_tasks,
    prototype_loop,
    score,
)
from benchmarks.timing.cases import Case, synthetic_images
from psco.recipes.build import build_method


@pytest.mark.parametrize(("size", "channels"), [(105, 1), (84, 3)])
def test_synthetic_images_are_ink_on_paper_of_the_requested_size(size, channels):
    images = synthetic_images(30, size, channels)
    pixels = images.images[np.arange(30)]
    assert pixels.shape == (30, size, size, channels)
    assert set(np.unique(pixels)) == {0, 255}
    assert images.labels is None
    ink = (pixels == 0).mean(axis=(1, 2, 3))
    assert ((ink > 0.01) & (ink < 0.4)).all()


def test_the_full_settings_are_the_omniglot_recipe_of_the_paper():
    recipe = choose_settings().base.resolve()
    assert (recipe.backbone.name, recipe.image.size, recipe.train.batch_size) == ("conv4", 28, 256)
    assert (recipe.heads.hidden, recipe.heads.out) == (2048, 128)
    assert recipe.method.options["queue_size"] == 16384
    large = choose_settings().large.resolve()
    assert (large.backbone.name, large.image.size, large.image.channels) == ("conv5", 84, 3)


@pytest.mark.parametrize(
    "case",
    [
        Case("omniglot", ("train.batch_size=32", "method.queue_size=512", "method.shots=3")),
        Case("miniimagenet", ("train.batch_size=4", "method.queue_size=64")),
        Case("omniglot", ("train.batch_size=8", "method.queue_size=64", "method.auxiliary=none")),
        Case("omniglot", ("train.batch_size=8", "method.queue_size=64", "heads.predictor=false")),
        Case("omniglot", ("train.batch_size=8", "method.queue_size=64", "views.count=4")),
    ],
)
@pytest.mark.usefixtures("without_kernels")  # torch does not count their operations
def test_the_operations_counted_are_those_of_the_real_step(case, monkeypatch):
    monkeypatch.setattr(
        "psco.networks.convnet.can_fuse", lambda *_: False
    )  # fused blocks compute a few operations twice
    recipe = case.resolve()
    method = build_method(recipe)
    x = torch.randn(recipe.train.batch_size, *2 * [recipe.image.size])[:, None]
    x = x.expand(-1, recipe.image.channels, -1, -1)
    with FlopCounterMode(display=False) as counter:
        online = x.repeat(recipe.views.count - 1, 1, 1, 1)
        run_loss(method, online, x)["total"].backward()
    assert sum(step_operations(recipe).values()) == counter.get_total_flops()


def test_the_speed_of_matrix_products_is_a_positive_number():
    assert gemm_speed([32, 48]) > 0


@pytest.mark.parametrize(("rule", "loop"), [("prototype", prototype_loop), ("adapt", adapt_loop)])
def test_the_loops_over_tasks_return_the_scores_of_the_batched_rules(rule, loop):
    heads = make_heads(32, 24, 16)
    task, truth = make_tasks(heads, tasks=3, ways=4, shots=3, queries=2, width=32)
    assert truth.shape == (3, 8)
    batched = score(rule, task, heads)
    assert torch.allclose(loop(task, heads), batched, atol=1e-3)
    assert torch.allclose(loop(first_tasks(task, 2), heads), batched[:2], atol=1e-3)
