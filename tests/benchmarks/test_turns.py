"""Sides take turns in alternating order, and processes that fail are reported in one line."""

from __future__ import annotations

import os

import pytest

from benchmarks.speed.sides import start_side
from benchmarks.timing.turns import subprogress, take_turns, worker_environment
from psco.errors import PscoError


def test_every_turn_measures_all_sides_and_every_second_turn_in_reverse():
    order: list[str] = []
    sides = {name: (lambda name=name: order.append(name) or len(order)) for name in "AB"}
    results = take_turns(sides, 3, lambda done, news: None)
    assert order == list("ABBAAB")
    assert results == {"A": [1, 4, 5], "B": [2, 3, 6]}


def test_progress_runs_from_section_to_section():
    seen = []
    sides = {"A": lambda: None, "B": lambda: None}
    for section in range(2):
        on_progress = subprogress(lambda done, news: seen.append((done, news)), section, 2)
        take_turns(sides, 1, on_progress)
    assert [done for done, _ in seen] == [0, 0.25, 0.5, 0.75]
    assert seen[1] == (0.25, "B, turn 1 of 1")


def test_a_side_that_fails_is_reported_in_one_line():
    options = {"tasks": 0, "loop_tasks": 1, "hidden": 8}
    with start_side("rules", **options) as side, pytest.raises(PscoError) as caught:
        side.measure(rule="prototype", loop=False)
    assert str(caught.value).startswith("benchmark process 'rules' ended: ")
    assert "\n" not in str(caught.value)


def test_sides_measure_the_cpu_with_the_wait_policy_of_the_program(monkeypatch):
    monkeypatch.delenv("GOMP_SPINCOUNT", raising=False)
    monkeypatch.delenv("OMP_WAIT_POLICY", raising=False)
    variables = worker_environment()
    assert variables["CUDA_VISIBLE_DEVICES"] == ""
    assert variables["GOMP_SPINCOUNT"] == "3000"
    assert "GOMP_SPINCOUNT" not in os.environ
    monkeypatch.setenv("OMP_WAIT_POLICY", "passive")
    assert "GOMP_SPINCOUNT" not in worker_environment()
