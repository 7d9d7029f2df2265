"""The clock of the phases: complete, on one thread, and without a trace afterwards."""

from __future__ import annotations

import threading
import time

import pytest
import torch

import psco.methods.psco as paper
from benchmarks.speed.phases import PHASES, PhaseClock, replaced, watching
from benchmarks.speed.settings import QUICK
from benchmarks.speed.trainer import Trainer
from psco.methods.momentum import MomentumTwin


def test_phases_add_up_and_belong_to_the_innermost_call():
    clock = PhaseClock()
    inner = clock.wrap(lambda: time.sleep(0.02), "backward", after="losses")
    clock.wrap(inner, "assignment")()
    fractions = clock.fractions()
    assert sum(fractions.values()) == pytest.approx(1)
    assert fractions["backward"] > fractions["assignment"]
    assert clock.enter("other") == "other"  # the outer call has restored the phase


def test_the_clock_ignores_other_threads():
    clock = PhaseClock()
    thread = threading.Thread(target=clock.wrap(lambda: None, "data_views"))
    thread.start()
    thread.join()
    assert clock.fractions()["data_views"] == 0


def test_a_replaced_attribute_comes_back_even_after_an_error():
    class Owner:
        def method(self) -> str:
            return "own"

    def fail() -> str:
        raise KeyError

    one = Owner()
    with pytest.raises(KeyError), replaced(one, "method", fail):
        one.method()
    assert "method" not in vars(one)
    assert one.method() == "own"


@pytest.fixture(scope="module")
def trainer() -> Trainer:
    return Trainer(QUICK.base)


def test_watching_a_loop_leaves_nothing_behind(trainer):
    loop = trainer.loop
    method = loop.method.module
    parts = [loop, loop.feed, loop.fabric, loop.optimizer, method, *method.modules()]
    owners = [*parts, MomentumTwin, paper]
    before = [dict(vars(owner)) for owner in owners]
    with watching(loop, PhaseClock()):
        assert paper.select_shots is not before[-1]["select_shots"]
    for owner, attributes in zip(owners, before, strict=True):
        assert dict(vars(owner)) == attributes


def test_the_fractions_of_a_step_cover_all_phases_and_sum_to_one(trainer):
    fractions = trainer.fractions(2)
    assert tuple(fractions) == PHASES
    assert sum(fractions.values()) == pytest.approx(1)
    assert min(fractions.values()) > 0


def test_a_measurement_continues_where_the_last_one_ended(trainer):
    begun = trainer.loop.step
    assert trainer.seconds(3) > 0
    assert trainer.loop.step == begun + 2 + 3  # warm-up and steps


def test_being_watched_does_not_change_the_training():
    watched, alone = Trainer(QUICK.base), Trainer(QUICK.base)
    watched.fractions(3)
    alone.seconds(3)
    theirs = alone.loop.method.state_dict()
    for name, mine in watched.loop.method.state_dict().items():
        assert torch.equal(mine, theirs[name]), name
