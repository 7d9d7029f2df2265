"""The parts of `psco bench`: which sides take turns, and what their times say."""

from __future__ import annotations

import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable
from contextlib import ExitStack
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks.speed.findings import Findings
from benchmarks.speed.inputs import Case
from benchmarks.speed.limit import step_operations
from benchmarks.speed.phases import PHASES
from benchmarks.speed.plan import Plan
from benchmarks.speed.stats import Figure, growth_slope, judged, ratio, slope, typical
from benchmarks.speed.turns import Side, take_turns
from psco.methods import METHODS
from psco.progress import Bar
from psco.training.environment import environment

Tell = Callable[[float, str], None]  # share of a part that is done, and what comes next


def run_bench(plan: Plan, progress: bool = True) -> Findings:
    """Measure the parts of a plan, one after the other.

    Parameters
    ----------
    plan
        See `benchmarks.speed.plan.make_plan`.
    progress
        Show on stderr what is being measured.
    """
    findings = Findings(
        recipe=plan.base.settled().model_dump(mode="json"),
        repeats=plan.repeats,
        steps=plan.steps,
        environment=environment(),
    )
    parts: dict[str, Callable[[Plan, Findings, Tell], None]] = {
        "step": measure_step,
        "evaluate": measure_evaluate,
        "growth": measure_growth,
        "start": measure_start,
    }
    # The step is measured together with what it is compared with.
    chosen = [p for p in parts if p in plan.parts or (p == "step" and _compared(plan))]
    with Bar("bench", progress) as bar:
        for number, part in enumerate(chosen):
            parts[part](plan, findings, partial(_within, bar.update, number, len(chosen)))
        bar.update(1.0)
    return findings


def _compared(plan: Plan) -> bool:
    return bool({"step", "naive", "limit"} & set(plan.parts))


def measure_step(plan: Plan, findings: Findings, tell: Tell) -> None:
    """Measure a training step, the naive one and the speed of matrix products, in turns."""
    case, recipe = asdict(plan.base), plan.base.settled()
    arguments: dict[str, dict[str, Any]] = {
        "step": {"case": "base", "steps": plan.steps},
        "naive": {"steps": plan.steps},
        "limit": {},
    }
    names: dict[str, tuple[str, dict[str, Any]]] = {
        "step": ("training", {"cases": {"base": case}}),
        "naive": ("naive", {"case": case}),
        "limit": ("gemm", {"sizes": plan.gemm_sizes}),
    }
    with ExitStack() as stack:
        sides = {
            part: stack.enter_context(Side(name, **options))
            for part, (name, options) in names.items()
            if part in plan.parts
        }
        for side in sides.values():
            side.wait()  # nobody is measured while another one gets ready
        turns = {part: partial(side.turn, **arguments[part]) for part, side in sides.items()}
        if "step" in sides:
            turns["shares"] = partial(turns["step"], shares=True)
        results = take_turns(turns, plan.repeats, tell)

    images = recipe.train.batch_size * recipe.train.accumulate
    for name in ("step", "naive"):
        if name in results:
            speeds = [images / seconds for seconds in results[name]]
            findings.put(f"{name}.images_per_s", typical(speeds), "images/s")
            findings.put(f"{name}.seconds", typical(results[name]), "s")
    if "limit" in results:
        operations = step_operations(recipe)
        for name, count in operations.items():
            findings.put(f"limit.gflop.{name}", Figure(count / 1e9), "GFLOP")
        speeds = [speed / 1e9 for speed in results["limit"]]
        findings.put("limit.gflop_per_s", typical(speeds), "GFLOP/s")
        results["limit"] = [sum(operations.values()) / speed for speed in results["limit"]]
        findings.put("limit.seconds", typical(results["limit"]), "s")
    if "step" in results:
        findings.put("step.ratio_to_naive", _quotient(results, "naive", "step"))
        findings.put("step.share_of_limit", _quotient(results, "limit", "step"), "%")
        for phase in PHASES:
            middle = statistics.median(shares[phase] for shares in results["shares"])
            findings.put(f"step.shares.{phase}", judged(middle, [results["step"]]), "%")


def _quotient(results: dict[str, list[Any]], upper: str, lower: str) -> Figure:
    for part in (upper, lower):
        if part not in results:
            return Figure.missing(f"part {part!r} was not measured")
    return ratio(results[upper], results[lower])


def measure_evaluate(plan: Plan, findings: Findings, tell: Tell) -> None:
    """Measure tasks a second of the rules `prototype` and `adapt`, and of loops over tasks."""
    sizes = {"tasks": plan.tasks, "loop_tasks": plan.loop_tasks, "hidden": plan.hidden}
    with Side("rules", **sizes) as side:
        turns = {
            f"{rule}{' loop' if loop else ''}": partial(side.turn, rule=rule, loop=loop)
            for rule in ("prototype", "adapt")
            for loop in (False, True)
        }
        speeds = take_turns(turns, plan.repeats, tell)
    for rule in ("prototype", "adapt"):
        batched, loop = speeds[rule], speeds[f"{rule} loop"]
        findings.put(f"evaluate.{rule}.tasks_per_s", typical(batched), "tasks/s")
        findings.put(f"evaluate.{rule}.loop_tasks_per_s", typical(loop), "tasks/s")
        findings.put(f"evaluate.{rule}.ratio_to_loop", ratio(batched, loop))


def measure_growth(plan: Plan, findings: Findings, tell: Tell) -> None:
    """Measure step time and memory against sizes, and PsCo's overhead over MoCo v2."""
    axes: dict[str, dict[int, Case]] = {
        "queue": {m: plan.base.with_(f"method.queue_size={m}") for m in plan.queues},
        "batch": {n: plan.base.with_(f"train.batch_size={n}") for n in plan.batches},
        "shots": {k: plan.base.with_(f"method.shots={k}") for k in plan.shots},
    }
    networks = {_network(case): case for case in (plan.base, plan.large)}
    cases = {f"{axis} {size}": case for axis in axes for size, case in axes[axis].items()}
    pairs = {name: {f"psco {name}": case} for name, case in networks.items()}
    if "moco" in METHODS:
        for name, case in networks.items():
            pairs[name][f"moco {name}"] = _moco(case)
    groups = [(cases, plan.growth_steps, plan.repeats)]
    # An overhead is a small difference of large numbers; short steps vary more and cost less.
    for pair, more in zip(pairs.values(), (6, 2), strict=True):
        groups.append((pair, plan.steps, more * plan.repeats))
    times: dict[str, list[float]] = {}
    for number, (group, steps, repeats) in enumerate(groups):
        # What is compared with each other is in one process, and stands close together in time.
        with Side("training", cases={name: asdict(case) for name, case in group.items()}) as side:
            turns = {name: partial(side.turn, case=name, steps=steps) for name in group}
            times |= take_turns(turns, repeats, partial(_within, tell, number, 2 + len(pairs)))

    for axis, sizes in axes.items():
        by_size = {size: times[f"{axis} {size}"] for size in sizes}
        for size, seconds in by_size.items():
            findings.put(f"growth.{axis}.seconds.{size}", typical(seconds), "s")
        findings.put(f"growth.{axis}.slope", growth_slope(list(by_size), list(by_size.values())))
    for name in networks:
        findings.put(f"growth.{name}.seconds", typical(times[f"psco {name}"]), "s")
        findings.put(f"growth.{name}.overhead_over_moco", _overhead(times, name), "%")
    _measure_memory(axes["queue"], plan, findings, partial(_within, tell, 3, 4))


def _within(tell: Tell, part: int, parts: int, done: float, news: str) -> None:
    tell((part + done) / parts, news)


def _overhead(times: dict[str, list[float]], network: str) -> Figure:
    if f"moco {network}" not in times:
        return Figure.missing("no method 'moco'")
    over = ratio(times[f"psco {network}"], times[f"moco {network}"])
    return over if over.value is None else Figure(over.value - 1, over.spread)


def _measure_memory(cases: dict[int, Case], plan: Plan, findings: Findings, tell: Tell) -> None:
    # A peak is a peak: every case has a process of its own, and nothing to repeat.
    peaks = {}
    for number, (size, case) in enumerate(cases.items()):
        tell(number / len(cases), f"memory, queue {size}")
        with Side("memory", case=asdict(case)) as side:
            peaks[size] = side.turn(steps=plan.growth_steps)
        findings.put(f"growth.memory.mb.{size}", Figure(peaks[size]), "MB")
    findings.put("growth.memory.slope", Figure(slope(list(peaks), list(peaks.values()))))


def _network(case: Case) -> str:
    recipe = case.settled()
    return f"{recipe.backbone.name}_{recipe.image.size}"


def _moco(case: Case) -> Case:
    # MoCo v2 has no predictor; queue, views and everything else are those of the case.
    size = case.settled().method.options["queue_size"]
    return case.with_(f"method={{name: moco, queue_size: {size}}}", "heads.predictor=false")


def measure_start(plan: Plan, findings: Findings, tell: Tell) -> None:
    """Measure how soon the program answers: its help, a picture classified cold and warm."""
    with tempfile.TemporaryDirectory() as name, Side("warm", folder=name) as side:
        side.wait()
        folder = Path(name)
        words = ["classify", folder / "classifier.psco", folder / "picture.png", "--device", "cpu"]
        turns: dict[str, Callable[[], float]] = {
            "help": partial(_command_seconds, ["--help"]),
            "cold": partial(_command_seconds, words),
            "warm": side.turn,
        }
        times = take_turns(turns, plan.repeats, tell)
    findings.put("start.help_s", typical(times["help"]), "s")
    findings.put("start.classify_cold_s", typical(times["cold"]), "s")
    findings.put("start.classify_warm_ms", typical([1e3 * t for t in times["warm"]]), "ms")


def _command_seconds(words: Iterable[object]) -> float:
    command = [sys.executable, "-m", "psco", *map(str, words)]
    begin = time.perf_counter()
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    return time.perf_counter() - begin
