"""The yardstick itself: what is counted, timed, refused and left as it was."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
import time
from pathlib import Path

import numpy as np
import pytest
import torch
from steps import run_loss
from torch.utils.flop_counter import FlopCounterMode

import psco.methods.psco as paper
from benchmarks.speed.findings import Findings
from benchmarks.speed.inputs import Case, invent_images
from benchmarks.speed.limit import gemm_speed, step_operations
from benchmarks.speed.phases import PHASES, PhaseClock, replaced, watching
from benchmarks.speed.plan import PARTS, QUICK, make_plan
from benchmarks.speed.rules import adapt_loop, first, make_heads, make_tasks, prototype_loop
from benchmarks.speed.stats import Figure, growth_slope, judged, ratio, slope, spread, typical
from benchmarks.speed.trainer import Trainer
from benchmarks.speed.turns import Side, take_turns
from psco.errors import InputError, PscoError
from psco.evaluation.rules import RULES
from psco.methods.momentum import MomentumTwin
from psco.recipes.build import build_method

ROOT = Path(__file__).parents[2]


def bench(*words: object) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "benchmarks.speed", *map(str, words)]
    return subprocess.run(command, capture_output=True, text=True, timeout=300, cwd=ROOT)


# ------------------------------------------------------------------------------------- statistics


def test_the_spread_is_the_inter_quartile_range_over_the_median():
    assert spread([8.0, 9.0, 10.0, 11.0, 12.0]) == pytest.approx(0.2)
    assert spread([10.0, 10.0, 10.0, 10.0, 500.0]) == 0  # one interruption does not count


def test_a_ratio_is_the_median_of_neighbours():
    found = ratio([20.0, 21.0, 22.0], [10.0, 10.5, 11.0])
    assert found.value == pytest.approx(2)
    assert found.refusal == ""


@pytest.mark.parametrize(
    ("upper", "lower"),
    [
        ([20.0, 26.0, 32.0], [10.0, 10.0, 10.0]),  # one side is unsteady
        ([20.0, 26.0, 32.0], [10.0, 13.0, 16.0]),  # both are, though their ratio is not
    ],
)
def test_a_ratio_of_noisy_sides_is_refused_with_the_reason(upper, lower):
    found = ratio(upper, lower)
    assert found.value is None
    assert found.refusal == "spread 23 %: too noisy, run again on a quiet machine"


def test_two_repeats_are_too_few_for_a_ratio_but_not_for_a_time():
    found = ratio([2.0, 2.0], [1.0, 1.0])
    assert found.value is None
    assert found.refusal == "repeats: 2, too few to tell a spread; use 3 or more"
    assert typical([2.0, 4.0]) == Figure(3.0, None)


def test_the_limit_of_the_spread_itself_is_allowed():
    times = [8.5, 10.0, 11.5]  # quartiles 9.25 and 10.75
    assert judged(7.0, [times], limit=0.15).value == 7.0
    assert judged(7.0, [times], limit=0.149).value is None


@pytest.mark.parametrize("power", [0.0, 0.5, 1.0, 2.0])
def test_the_slope_of_a_power_law_is_its_power(power):
    sizes = [4096, 16384, 65536]
    assert slope(sizes, [3e-4 * size**power for size in sizes]) == pytest.approx(power)


def test_a_growth_slope_is_the_median_over_the_repeats():
    sizes = [1, 10, 100]
    factors = [1.0, 1.02, 0.98]
    times = [[factor * size**0.7 for factor in factors] for size in sizes]
    assert growth_slope(sizes, times).value == pytest.approx(0.7)
    times[1] = [1.0, 20.0, 5.0]
    assert "too noisy" in growth_slope(sizes, times).refusal


def test_a_slope_of_one_size_is_an_error():
    with pytest.raises(InputError, match=r"two different sizes at least, not \[5, 5\]"):
        slope([5, 5], [1.0, 2.0])


# ------------------------------------------------------------------------------- what is measured


@pytest.mark.parametrize(("size", "channels"), [(105, 1), (84, 3)])
def test_invented_images_are_ink_on_paper_of_the_size_asked_for(size, channels):
    images = invent_images(30, size, channels)
    pixels = images.images[np.arange(30)]
    assert pixels.shape == (30, size, size, channels)
    assert set(np.unique(pixels)) == {0, 255}
    assert images.labels is None
    ink = (pixels == 0).mean(axis=(1, 2, 3))
    assert ((ink > 0.01) & (ink < 0.4)).all()


def test_the_full_plan_is_the_omniglot_recipe_of_the_paper():
    recipe = make_plan().base.settled()
    assert (recipe.backbone.name, recipe.image.size, recipe.train.batch_size) == ("conv4", 28, 256)
    assert (recipe.heads.hidden, recipe.heads.out) == (2048, 128)
    assert recipe.method.options["queue_size"] == 16384
    large = make_plan().large.settled()
    assert (large.backbone.name, large.image.size, large.image.channels) == ("conv5", 84, 3)


@pytest.mark.parametrize(
    "case",
    [
        Case("omniglot", ("train.batch_size=32", "method.queue_size=512", "method.shots=3")),
        Case("miniimagenet", ("train.batch_size=4", "method.queue_size=64")),
        Case("omniglot", ("train.batch_size=8", "method.queue_size=64", "method.auxiliary=none")),
        Case("omniglot", ("train.batch_size=8", "method.queue_size=64", "heads.predictor=false")),
    ],
)
@pytest.mark.usefixtures("without_kernels")  # whose operations torch does not see
def test_the_operations_counted_are_those_of_the_real_step(case, monkeypatch):
    monkeypatch.setattr("psco.networks.convnet.can_fuse", lambda *_: False)  # a few more, to save
    recipe = case.settled()
    method = build_method(recipe)
    x = torch.randn(recipe.train.batch_size, *2 * [recipe.image.size])[:, None]
    x = x.expand(-1, recipe.image.channels, -1, -1)
    with FlopCounterMode(display=False) as counter:
        run_loss(method, x, x)["total"].backward()
    assert sum(step_operations(recipe).values()) == counter.get_total_flops()


def test_the_speed_of_matrix_products_is_a_positive_number():
    assert gemm_speed([32, 48]) > 0


@pytest.mark.parametrize(("rule", "loop"), [("prototype", prototype_loop), ("adapt", adapt_loop)])
def test_the_loops_over_tasks_give_the_scores_of_the_batched_rules(rule, loop):
    heads = make_heads(32, 24, 16)
    task, truth = make_tasks(heads, tasks=3, ways=4, shots=3, queries=2, width=32)
    assert truth.shape == (3, 8)
    batched = RULES[rule]()(*task, heads)
    assert torch.allclose(loop(task, heads), batched, atol=1e-3)
    assert torch.allclose(loop(first(task, 2), heads), batched[:2], atol=1e-3)


# ------------------------------------------------------------------------------------- the clock


def test_phases_add_up_and_belong_to_the_innermost_call():
    clock = PhaseClock()
    inner = clock.wrap(lambda: time.sleep(0.02), "backward", after="losses")
    clock.wrap(inner, "assignment")()
    shares = clock.shares()
    assert sum(shares.values()) == pytest.approx(1)
    assert shares["backward"] > shares["assignment"]
    assert clock.enter("other") == "other"  # the outer call has put back what was before


def test_the_clock_does_not_listen_to_other_threads():
    clock = PhaseClock()
    thread = threading.Thread(target=clock.wrap(lambda: None, "data_views"))
    thread.start()
    thread.join()
    assert clock.shares()["data_views"] == 0


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


def test_the_shares_of_a_step_cover_all_phases_and_sum_to_one(trainer):
    shares = trainer.shares(2)
    assert tuple(shares) == PHASES
    assert sum(shares.values()) == pytest.approx(1)
    assert min(shares.values()) > 0


def test_a_turn_trains_on_from_where_the_last_one_ended(trainer):
    begun = trainer.loop.step
    assert trainer.seconds(3) > 0
    assert trainer.loop.step == begun + 2 + 3  # warm-up and steps


def test_being_watched_does_not_change_the_training():
    watched, alone = Trainer(QUICK.base), Trainer(QUICK.base)
    watched.shares(3)
    alone.seconds(3)
    theirs = alone.loop.method.state_dict()
    for name, mine in watched.loop.method.state_dict().items():
        assert torch.equal(mine, theirs[name]), name


# ------------------------------------------------------------------------------------ the program


def test_sides_take_turns():
    order: list[str] = []
    turns = {name: (lambda name=name: order.append(name) or len(order)) for name in "AB"}
    assert take_turns(turns, 3, lambda done, news: None) == {"A": [1, 3, 5], "B": [2, 4, 6]}
    assert order == list("ABABAB")


def test_a_side_that_fails_is_reported_in_one_line():
    with Side("rules", tasks=0, loop_tasks=1, hidden=8) as side, pytest.raises(PscoError) as caught:
        side.turn(rule="prototype", loop=False)
    assert str(caught.value).startswith("the side 'rules' of the benchmark has ended: ")
    assert "\n" not in str(caught.value)


def test_findings_nest_by_name_and_tell_spreads_and_refusals():
    findings = Findings(repeats=3)
    findings.put("step.images_per_s", Figure(700.0, 0.02), "images/s")
    findings.put("step.shares.backward", Figure(0.4, 0.02), "%")
    findings.put("step.ratio_to_naive", Figure(None, 0.3, "spread 30 %: too noisy"))
    assert findings.as_dict() == {
        "repeats": 3,
        "step": {"images_per_s": 700.0, "shares": {"backward": 0.4}, "ratio_to_naive": None},
        "spreads": {
            "step.images_per_s": 0.02,
            "step.shares.backward": 0.02,
            "step.ratio_to_naive": 0.3,
        },
        "refused": {"step.ratio_to_naive": "spread 30 %: too noisy"},
    }
    assert findings.rows() == [
        ("step.images_per_s", "700 images/s", "2 %"),
        ("step.shares.backward", "40.0 %", "2 %"),
        ("step.ratio_to_naive", "spread 30 %: too noisy", ""),
    ]


def test_a_part_that_does_not_exist_is_an_error_with_the_nearest_one():
    with pytest.raises(InputError, match="unknown part 'stpe'; did you mean 'step'"):
        make_plan(("limit", "stpe"))


@pytest.mark.parametrize("name", ["repeats", "steps"])
def test_numbers_below_one_are_errors(name):
    with pytest.raises(InputError, match=f"--{name} must be at least 1, not 0"):
        make_plan(**{name: 0})


def test_parts_keep_their_order_whatever_was_asked():
    assert make_plan(("limit", "step")).parts == ("step", "limit")
    assert make_plan().parts == PARTS


def test_a_quick_run_prints_the_step_beside_the_naive_one_and_the_limit_as_json():
    done = bench("--quick", "--json", "--parts", "step", "naive", "limit")
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    step = found["step"]
    assert step["images_per_s"] == pytest.approx(8 / step["seconds"], rel=0.5)
    assert set(step["shares"]) == set(PHASES)
    for name in ("ratio_to_naive", "share_of_limit"):
        assert (step[name] is None) == (f"step.{name}" in found["refused"])
    assert found["naive"]["images_per_s"] > 0
    assert found["limit"]["seconds"] > 0
    assert found["repeats"] == 3
    assert found["environment"]["threads"] >= 1
    assert set(found["spreads"]) >= {"step.images_per_s", "step.seconds", "naive.seconds"}


def test_a_quick_run_prints_evaluation_and_growth_as_json():
    words = ["--parts", "evaluate", "--parts", "growth", "--repeats", 1]
    done = bench("--quick", "--json", *words)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    for rule in ("prototype", "adapt"):
        assert set(found["evaluate"][rule]) == {"tasks_per_s", "loop_tasks_per_s", "ratio_to_loop"}
    growth = found["growth"]
    for axis, sizes in {"queue": {"32", "64"}, "batch": {"4", "8"}, "shots": {"1", "2"}}.items():
        assert set(growth[axis]["seconds"]) == sizes
        assert "slope" in growth[axis]
    for network in ("conv4_28", "conv5_84"):
        assert set(growth[network]) == {"seconds", "overhead_over_moco"}
    assert min(growth["memory"]["mb"].values()) > 50
    assert "slope" in growth["memory"]
    assert "too few" in found["refused"]["growth.queue.slope"]
    assert "step" not in found


def test_a_quick_run_prints_a_table_of_how_soon_the_program_answers():
    done = bench("--quick", "--parts", "start", "--repeats", 1)
    assert done.returncode == 0, done.stderr
    for name in ("start.help_s", "start.classify_cold_s", "start.classify_warm_ms"):
        assert name in done.stdout
