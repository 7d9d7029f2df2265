"""ProtoNets: its loss against a loop, its rule, and the tasks it trains on."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from steps import run_loss
from torch import nn

from psco.data import ImageSet
from psco.errors import InputError
from psco.evaluation.rules import RULES, Embeddings, SupportSet
from psco.methods import Episode
from psco.methods.protonets import ProtoNets, protonet_loss
from psco.networks import Networks
from psco.training.feed import EpisodeFeed
from psco.training.inputs import feed_for


def one_task_loss(support: torch.Tensor, query: torch.Tensor) -> float:
    """Snell et al., Algorithm 1, for (N, K, d) supports and (N, Q, d) queries."""
    means = [sum(shots) / len(shots) for shots in support]
    terms = []
    for n, points in enumerate(query):
        for x in points:
            distances = [sum(float(u) ** 2 for u in x - c) for c in means]
            terms.append(distances[n] + math.log(sum(math.exp(-d) for d in distances)))
    return sum(terms) / len(terms)


@pytest.mark.parametrize(("ways", "shots", "queries"), [(3, 1, 2), (4, 3, 1), (2, 2, 5)])
def test_the_loss_equals_its_loop_with_the_sum_of_squares_as_distance(ways, shots, queries):
    torch.manual_seed(0)
    support = torch.randn(ways, shots, 6, dtype=torch.float64)
    query = torch.randn(ways, queries, 6, dtype=torch.float64)
    ours = protonet_loss(support, query).item()
    assert ours == pytest.approx(one_task_loss(support, query), abs=1e-10)


def test_the_loss_of_several_tasks_is_their_mean():
    torch.manual_seed(0)
    support, query = torch.randn(3, 4, 2, 6).double(), torch.randn(3, 4, 5, 6).double()
    twins = [one_task_loss(s, q) for s, q in zip(support, query, strict=True)]
    assert protonet_loss(support, query).item() == pytest.approx(np.mean(twins), abs=1e-10)


def test_supports_and_queries_pass_the_network_together():
    torch.manual_seed(0)
    f = nn.Sequential(nn.Flatten(), nn.Linear(9, 5), nn.BatchNorm1d(5))
    method = ProtoNets(Networks(f, None, None), ways=4, shots=1, queries=2)
    x = torch.randn(12, 1, 3, 3)
    features = f(x).reshape(4, 3, 5)
    twin = protonet_loss(features[:, :1], features[:, 1:])
    assert run_loss(method, x, x)["total"].item() == pytest.approx(twin.item())


def test_the_rule_picks_the_nearest_mean_in_the_euclidean_sense():
    # By cosine the second class would win; by distance it is the first.
    support = torch.tensor(
        [[[1.0, 0.0], [3.0, 0.0], [0.0, 9.0], [2.0, 11.0]]]
    )  # means (2,0), (1,10)
    query = torch.tensor([[[0.6, 1.0]]])
    none = torch.empty(1, 4, 0)
    known = SupportSet(Embeddings(support, none, none), torch.tensor([[0, 0, 1, 1]]), 2)
    asked = Embeddings(query, none[:, :1], none[:, :1])
    scores = RULES["euclidean"]()(known, asked)
    torch.testing.assert_close(scores, -torch.tensor([[[1.4**2 + 1, 0.4**2 + 81]]]))
    assert RULES["class-mean"]()(known, asked).argmax() == 1


def labelled(classes: int = 6, each: int = 5, size: int = 8) -> ImageSet:
    """Images that tell their own number: the first two pixels are class and place."""
    images = np.zeros((classes * each, size, size, 1), dtype=np.uint8)
    labels = np.repeat(np.arange(classes), each)
    images[:, 0, 0, 0], images[:, 0, 1, 0] = labels, np.tile(np.arange(each), classes)
    return ImageSet(images, labels, tuple(map(str, range(classes))), "counted", "train")


def test_a_training_batch_is_tasks_class_by_class_without_repeats():
    feed = EpisodeFeed(labelled(), Episode(ways=4, shots=2, queries=3, tasks=2), seed=1)
    images, labels = feed[7]
    tasks = labels.reshape(2, 4, 5)
    assert (tasks == tasks[:, :, :1]).all()
    assert all(len(set(task[:, 0].tolist())) == 4 for task in tasks)
    places = images[:, 0, 0, 1].reshape(2, 4, 5)
    assert all(len(set(row.tolist())) == 5 for task in places for row in task)


def test_tasks_differ_from_step_to_step_and_classes_have_no_fixed_place():
    feed = EpisodeFeed(labelled(), Episode(ways=3, shots=1, queries=1), seed=1)
    firsts = {int(feed.indices(step)[0]) // 5 for step in range(40)}
    assert firsts == set(range(6))
    assert np.array_equal(feed.indices(5), feed.indices(5))


def test_as_many_ways_as_the_batch_has_room_for_unless_they_are_given():
    method = ProtoNets(Networks(nn.Identity(), None, None))
    method.set_batch_size(256)
    assert (method.episode.ways, method.episode.images) == (42, 252)
    given = ProtoNets(Networks(nn.Identity(), None, None), ways=60)
    given.set_batch_size(256)
    assert given.episode.images == 360


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"ways": 7, "shots": 1, "queries": 2}, "7 classes of at least 3 images; 6 of 6 classes"),
        ({"ways": 3, "shots": 2, "queries": 4}, "3 classes of at least 6 images; 0 of 6 classes"),
    ],
)
def test_too_few_classes_or_images_are_named_with_the_settings_to_change(options, message):
    method = ProtoNets(Networks(nn.Identity(), None, None), **options)
    with pytest.raises(InputError, match=f"'counted'.*{message}.*lower method.ways, method.shots"):
        feed_for(method, labelled(), 16, 0)


@pytest.mark.parametrize(
    ("options", "message"),
    [({"ways": 0}, "ways must be at least"), ({"shots": 0}, "shots must be at least 1, got 0")],
)
def test_numbers_that_make_no_task_are_refused(options, message):
    with pytest.raises(InputError, match=message):
        ProtoNets(Networks(nn.Identity(), None, None), **options)
