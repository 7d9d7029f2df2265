"""The program behind `make bench`: its settings, its JSON and its table."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.speed.findings import Findings
from benchmarks.speed.measure import put_fractions
from benchmarks.speed.phases import PHASES
from benchmarks.speed.settings import PARTS, choose_settings
from benchmarks.timing.stats import Figure
from psco.errors import InputError

ROOT = Path(__file__).parents[2]


def bench(*words: object) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "benchmarks.speed", *map(str, words)]
    return subprocess.run(command, capture_output=True, text=True, timeout=300, cwd=ROOT)


def test_findings_nest_by_name_and_hold_intervals_spreads_and_refusals():
    findings = Findings(repeats=6)
    findings.put("step.images_per_s", Figure(700.0, spread=0.02), "images/s")
    findings.put("step.shares.backward", Figure(0.4, (0.38, 0.41)), "%")
    findings.put("step.ratio_to_naive", Figure.missing("part 'naive' was not measured"))
    assert findings.as_dict() == {
        "repeats": 6,
        "step": {"images_per_s": 700.0, "shares": {"backward": 0.4}, "ratio_to_naive": None},
        "intervals": {"step.shares.backward": [0.38, 0.41]},
        "spreads": {"step.images_per_s": 0.02},
        "refused": {"step.ratio_to_naive": "part 'naive' was not measured"},
    }
    assert findings.rows() == [
        ("step.images_per_s", "700 images/s", "", "2 %"),
        ("step.shares.backward", "40.0 %", "38.0 % to 41.0 %", ""),
        ("step.ratio_to_naive", "part 'naive' was not measured", "", ""),
    ]


def test_fractions_of_a_step_are_medians_over_the_turns_with_an_interval():
    turns = [dict.fromkeys(PHASES, 0.1) | {"assignment": n / 100} for n in range(1, 7)]
    findings = Findings()
    put_fractions(findings, turns)
    found = findings.as_dict()
    assert found["step"]["shares"]["assignment"] == pytest.approx(0.035)
    assert found["intervals"]["step.shares.assignment"] == [0.01, 0.06]
    assert found["intervals"]["step.shares.backward"] == [0.1, 0.1]


def test_an_unknown_part_is_an_error_with_the_nearest_one():
    with pytest.raises(InputError, match="unknown part 'stpe'; did you mean 'step'"):
        choose_settings(("limit", "stpe"))


@pytest.mark.parametrize("name", ["repeats", "steps"])
def test_numbers_below_one_are_errors(name):
    with pytest.raises(InputError, match=f"--{name} must be at least 1, got 0"):
        choose_settings(**{name: 0})


def test_parts_keep_their_order_whatever_the_order_of_the_request():
    assert choose_settings(("limit", "step")).parts == ("step", "limit")
    assert choose_settings().parts == PARTS


def test_an_input_error_is_one_line_and_exit_code_two():
    done = bench("--repeats", 0)
    assert done.returncode == 2
    assert done.stderr == "error: --repeats must be at least 1, got 0\n"


def test_a_quick_run_prints_the_step_beside_the_naive_one_and_the_limit_as_json():
    done = bench("--quick", "--json", "--parts", "step", "naive", "limit")
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    step = found["step"]
    assert step["images_per_s"] == pytest.approx(8 / step["seconds"], rel=0.5)
    assert set(step["shares"]) == set(PHASES)
    for name in ("ratio_to_naive", "share_of_limit", "shares.assignment"):
        low, high = found["intervals"][f"step.{name}"]
        assert 0 < low <= high
    assert found["refused"] == {}
    assert found["naive"]["images_per_s"] > 0
    assert found["limit"]["seconds"] > 0
    assert found["repeats"] == 6
    environment = found["environment"]
    assert environment["threads"] >= 1
    assert environment["command"][:4] == ["python", "-m", "benchmarks.speed", "--quick"]
    assert set(found["spreads"]) >= {"step.images_per_s", "step.seconds", "naive.seconds"}


def test_a_quick_run_prints_evaluation_and_growth_as_json():
    done = bench("--quick", "--json", "--parts", "evaluate", "growth", "--repeats", 1)
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
    # The overhead has six times the turns, enough for an interval even here.
    assert "growth.conv4_28.overhead_over_moco" in found["intervals"]
    assert min(growth["memory"]["mb"].values()) > 50
    assert "slope" in growth["memory"]
    assert "at least 6 turns, got 1" in found["refused"]["growth.queue.slope"]
    assert "step" not in found


def test_a_quick_run_prints_a_table_of_start_up_times():
    done = bench("--quick", "--parts", "start", "--repeats", 1)
    assert done.returncode == 0, done.stderr
    for name in ("start.help_s", "start.classify_cold_s", "start.classify_warm_ms"):
        assert name in done.stdout
