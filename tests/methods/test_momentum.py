from __future__ import annotations

import copy

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

import psco


@given(st.integers(1, 9), st.lists(st.integers(0, 20), max_size=8))
@settings(deadline=None)
def test_the_queue_holds_exactly_the_last_keys_for_any_sequence_of_batch_sizes(size, batches):
    queue = psco.MomentumQueue(size, 2)
    seen = [tuple(key) for key in queue.keys.tolist()]
    labels = [-1] * size
    count = 0
    for batch in batches:
        keys = torch.arange(count, count + 2 * batch, dtype=torch.float32).view(batch, 2)
        queue.push(keys, torch.arange(batch))
        seen += [tuple(key) for key in keys.tolist()]
        labels += list(range(batch))
        count += 2 * batch
    oldest_first = torch.roll(queue.keys, -int(queue.position), dims=0).tolist()
    assert [tuple(key) for key in oldest_first] == seen[-size:]
    assert torch.roll(queue.labels, -int(queue.position)).tolist() == labels[-size:]


def test_the_queue_starts_with_random_unit_vectors_without_labels():
    queue = psco.MomentumQueue(100, 8)
    torch.testing.assert_close(queue.keys.norm(dim=1), torch.ones(100))
    assert len(queue.keys.unique(dim=0)) == 100
    assert (queue.labels == -1).all()


def test_the_queue_survives_a_state_dict():
    one, other = psco.MomentumQueue(10, 3), psco.MomentumQueue(10, 3)
    one.push(torch.randn(7, 3), torch.arange(7))
    other.load_state_dict(one.state_dict())
    for queue in (one, other):
        queue.push(torch.ones(5, 3))
    assert torch.equal(one.keys, other.keys)
    assert torch.equal(one.labels, other.labels)


def test_a_push_leaves_the_keys_that_a_graph_still_reads():
    queue = psco.MomentumQueue(4, 3)
    q = torch.randn(2, 3, requires_grad=True)
    loss = (q @ queue.keys.T).square().sum()
    queue.push(torch.zeros(2, 3))
    loss.backward()


def test_a_queue_without_room_is_refused():
    with pytest.raises(psco.InputError, match="queue_size must be at least 1, got 0"):
        psco.MomentumQueue(0, 3)


@pytest.mark.parametrize("momentum", [0.0, 0.9, 1.0])
def test_the_average_has_its_closed_form_after_n_steps(momentum):
    torch.manual_seed(0)
    network = nn.Linear(3, 2).double()
    twin = psco.MomentumTwin(network)
    start = network.weight.detach().clone()
    steps = [torch.randn(2, 3).double() for _ in range(5)]
    for value in steps:
        network.weight.data.copy_(value)
        twin.update(network, momentum)
    n = len(steps)
    expected = momentum**n * start + sum(
        (1 - momentum) * momentum ** (n - 1 - i) * value for i, value in enumerate(steps)
    )
    torch.testing.assert_close(twin.network.weight, expected)


@pytest.mark.parametrize(("policy", "mean"), [("copy", 1.0), ("average", 0.25), ("own", 0.0)])
def test_running_statistics_follow_the_stated_policy(policy, mean):
    network = nn.BatchNorm1d(2)
    twin = psco.MomentumTwin(network, buffers=policy)
    network.running_mean.fill_(1.0)
    network.num_batches_tracked.fill_(7)
    twin.update(network, 0.75)
    assert twin.network.running_mean.tolist() == [mean, mean]
    assert twin.network.num_batches_tracked == (0 if policy == "own" else 7)


def test_a_twin_keeps_following_after_either_network_was_moved_or_copied():
    method = nn.ModuleDict({"network": nn.BatchNorm1d(2)})
    method["twin"] = psco.MomentumTwin(method["network"])
    method["twin"].update(method["network"], 0.5)
    for moved in (method.double(), copy.deepcopy(method)):  # new buffers, and new parameters too
        network, twin = moved["network"], moved["twin"]
        network.running_mean += 1.0
        network.bias.data += 1.0
        before = twin.network.bias.detach().clone()
        twin.update(network, 0.5)
        assert twin.network.running_mean.equal(network.running_mean)
        assert twin.network.bias.equal((before + network.bias) / 2)
    alone = copy.deepcopy(method["twin"])
    alone.update(method["network"], 0.0)
    assert alone.network.bias.equal(method["network"].bias)
    assert not alone.network.bias.equal(method["twin"].network.bias)


def test_an_unknown_policy_is_refused():
    with pytest.raises(psco.InputError, match="'copy', 'average' or 'own', got 'mean'"):
        psco.MomentumTwin(nn.Linear(1, 1), buffers="mean")


def test_the_twin_takes_no_gradient_and_shares_no_memory():
    network = nn.Linear(3, 2)
    twin = psco.MomentumTwin(network)
    assert not twin(torch.randn(4, 3)).requires_grad
    assert all(not parameter.requires_grad for parameter in twin.parameters())
    network.weight.data.zero_()
    assert twin.network.weight.abs().sum() > 0
