"""UMTRA: its tasks against a loop, its views, and both modes of BatchNorm."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from steps import run_loss
from torch import nn

import psco
from psco.data import ImageSet
from psco.evaluation.embed import Encoder
from psco.methods.maml import MAML
from psco.methods.umtra import UMTRA
from psco.networks import Networks
from psco.recipes.build import build_views
from psco.recipes.recipe import load_recipe
from psco.training.feed import Feed
from psco.training.inputs import feed_for

WAYS, TASKS = 4, 3


def networks() -> Networks:
    torch.manual_seed(0)
    f = nn.Sequential(nn.Conv2d(1, 3, 3), nn.BatchNorm2d(3), nn.ReLU(), nn.Flatten())
    return Networks(f, nn.Linear(3 * 16, 4), None)


def umtra(**options: object) -> UMTRA:
    return UMTRA(networks(), ways=WAYS, tasks=TASKS, inner_rate=0.1, **options).double()


@pytest.mark.parametrize("statistics", ["support", "query"])
def test_an_image_is_the_support_of_its_class_and_its_view_the_query(statistics):
    ours = umtra(statistics=statistics)
    twin = MAML(networks(), WAYS, 1, 1, 1, 0.1, statistics=statistics).double()
    twin.load_state_dict(ours.state_dict())
    x = torch.randn(TASKS * WAYS, 1, 6, 6, dtype=torch.float64)
    view = torch.randn(TASKS * WAYS, 1, 6, 6, dtype=torch.float64)
    losses = []
    for task in range(TASKS):
        pairs = []
        for way in range(WAYS):
            pairs += [x[task * WAYS + way], view[task * WAYS + way]]
        one = torch.stack(pairs)
        losses.append(run_loss(twin, one, one)["total"].item())
    assert run_loss(ours, x, view)["total"].item() == pytest.approx(np.mean(losses), abs=1e-12)


def test_a_step_takes_one_image_for_each_class_of_its_tasks():
    images = ImageSet(np.zeros((100, 8, 8, 1), dtype=np.uint8))
    feed = feed_for(umtra(), images, batch_size=64, seed=0)
    assert type(feed) is Feed
    indices = feed.indices(0)
    assert len(indices) == len(set(indices.tolist())) == TASKS * WAYS


def test_the_default_views_leave_supports_alone_and_move_and_thin_out_queries():
    recipe = load_recipe("glyphs", ["method.name=umtra"])
    pair = build_views(recipe)
    image = torch.full((64, 1, 28, 28), 255, dtype=torch.uint8)
    image[:, :, 10:18, 10:18] = 0
    support, query = pair(image, torch.Generator().manual_seed(0))
    assert support.std(dim=0).max() == 0
    ink = query < query.amax() - 1e-3
    share = ink.float().mean() / (support < support.amax() - 1e-3).float().mean()
    assert 0.4 < share < 0.7  # a shift by a fraction of a pixel widens the ink
    rows = [row.any(dim=-1)[0].nonzero() for row in ink]
    tops = torch.stack([row.min() for row in rows]).float()
    assert 4 <= 10 - tops.min() <= 7
    assert 4 <= tops.max() - 10 <= 8


def test_the_mode_of_the_statistics_says_whether_a_test_is_transductive(few_glyphs):
    for statistics, transductive in (("support", False), ("query", True)):
        changes = ["method.name=umtra", "method.ways=3", f"method.statistics={statistics}"]
        encoder = Encoder.untrained(load_recipe("glyphs", [*changes, "method.test_steps=1"]))
        report = psco.evaluate(encoder, few_glyphs, ways=3, queries=2, tasks=2, progress=False)
        assert report.transductive is transductive
    assert "transductive with statistics=query" in UMTRA.protocol
