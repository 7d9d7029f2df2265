"""Few-shot tasks: uniform, disjoint, and the same for a seed on every machine."""

from __future__ import annotations

import hashlib

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import psco
from psco.data.tasks import load_tasks, sample_tasks


@given(
    st.lists(st.integers(1, 9), min_size=2, max_size=8),
    st.integers(1, 3),
    st.integers(1, 3),
    st.integers(0, 2**32),
)
@settings(deadline=None)
def test_supports_and_queries_are_disjoint_and_of_their_class(counts, shots, queries, seed):
    labels = np.random.default_rng(0).permutation(np.repeat(np.arange(len(counts)), counts))
    usable = sum(count >= shots + queries for count in counts)
    if usable < 2:
        with pytest.raises(psco.InputError, match=f"{usable} of {len(counts)} classes"):
            sample_tasks(labels, 2, shots, queries, 3, seed)
        return
    tasks = sample_tasks(labels, 2, shots, queries, 20, seed)
    assert tasks.support.shape == (20, 2, shots)
    assert tasks.query.shape == (20, 2, queries)
    assert tasks.left_out == len(counts) - usable
    for support, query in zip(tasks.support, tasks.query, strict=True):
        together = np.concatenate([support, query], axis=1)
        assert len(set(together.flatten().tolist())) == together.size
        classes = labels[together]
        assert (classes == classes[:, :1]).all()
        assert len(set(classes[:, 0].tolist())) == 2


def test_a_seed_gives_the_same_tasks_on_any_machine_and_numpy():
    tasks = sample_tasks(np.repeat(np.arange(50), 20), 5, 1, 15, 100, seed=7)
    content = tasks.support.astype("<i8").tobytes() + tasks.query.astype("<i8").tobytes()
    assert hashlib.sha256(content).hexdigest()[:16] == "9b2c7cf1f4e03322"


def test_the_first_tasks_do_not_depend_on_how_many_are_drawn():
    labels = np.repeat(np.arange(30), 20)
    few, many = (sample_tasks(labels, 5, 2, 5, count, 3) for count in (10, 500))
    assert np.array_equal(few.support, many.support[:10])
    assert np.array_equal(few.query, many.query[:10])


def test_tasks_drawn_in_chunks_equal_those_drawn_at_once(monkeypatch):
    labels = np.repeat(np.arange(30), 20)
    whole = sample_tasks(labels, 5, 2, 5, 50, 3)
    monkeypatch.setattr("psco.data.tasks._CHUNK", 1000)
    pieces = sample_tasks(labels, 5, 2, 5, 50, 3)
    assert np.array_equal(whole.support, pieces.support)


def test_classes_and_images_are_drawn_uniformly():
    labels = np.repeat(np.arange(10), 8)
    tasks = sample_tasks(labels, 2, 1, 1, 20000, 0)
    shares = np.bincount(tasks.support.flatten(), minlength=80) / tasks.support.size
    assert np.abs(shares - 1 / 80).max() < 0.003


@pytest.mark.parametrize("field", ["ways", "shots", "queries", "tasks"])
def test_numbers_below_one_are_refused(field):
    request = {"ways": 2, "shots": 1, "queries": 1, "tasks": 1, field: 0}
    with pytest.raises(psco.InputError, match=f"{field} must be at least 1, not 0"):
        sample_tasks(np.repeat(np.arange(3), 5), **request, seed=0)


def test_too_few_classes_or_images_are_an_error_with_the_numbers():
    with pytest.raises(psco.InputError, match="5 classes of at least 16 images; 0 of 3"):
        sample_tasks(np.repeat(np.arange(3), 10), 5, 1, 15, 10, 0)


def test_saved_tasks_are_loaded_unchanged(tmp_path):
    labels = np.repeat(np.arange(9), 20)
    tasks = sample_tasks(labels, 5, 2, 6, 30, seed=4)
    tasks.save(tmp_path / "tasks.npz")
    again = load_tasks(tmp_path / "tasks.npz")
    assert np.array_equal(again.support, tasks.support)
    assert np.array_equal(again.query, tasks.query)
    assert (again.seed, again.left_out, again.setting) == (4, 0, (5, 2))
    again.check(labels)


def test_tasks_of_another_data_set_are_refused():
    tasks = sample_tasks(np.repeat(np.arange(9), 20), 5, 2, 6, 30, seed=4)
    for labels in (np.repeat(np.arange(9), 10), np.tile(np.arange(9), 20), np.zeros(180)):
        with pytest.raises(psco.InputError, match="another data set"):
            tasks.check(labels)


@pytest.mark.parametrize("damage", ["cut", "text", "missing"])
def test_a_damaged_task_file_is_an_error_with_its_name(tmp_path, damage):
    file = tmp_path / "tasks.npz"
    sample_tasks(np.repeat(np.arange(9), 20), 5, 2, 6, 30, seed=4).save(file)
    if damage == "cut":
        file.write_bytes(file.read_bytes()[:-40])
    elif damage == "text":
        file.write_text("tasks")
    else:
        file.unlink()
    with pytest.raises(psco.InputError, match=r"tasks\.npz"):
        load_tasks(file)
