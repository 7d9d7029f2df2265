"""The parts of `make bench`: which sides take turns, and what is concluded from their times."""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks.speed.findings import Findings
from benchmarks.speed.growth import measure_growth
from benchmarks.speed.limit import step_operations
from benchmarks.speed.phases import PHASES
from benchmarks.speed.settings import Settings
from benchmarks.speed.sides import start_side
from benchmarks.timing.stats import Figure, absolute, per_turn, ratio
from benchmarks.timing.turns import Progress, describe_environment, subprogress, take_turns
from psco.progress import Bar


def run_bench(settings: Settings, show_progress: bool = True) -> Findings:
    """Measure the chosen parts, one after the other.

    Parameters
    ----------
    settings
        See `benchmarks.speed.settings.choose_settings`.
    show_progress
        Show on stderr what is being measured.
    """
    findings = Findings(
        recipe=settings.base.resolve().model_dump(mode="json"),
        repeats=settings.turns,
        steps=settings.steps,
        environment=describe_environment("benchmarks.speed"),
    )
    parts: dict[str, Callable[[Settings, Findings, Progress], None]] = {
        "step": measure_step,
        "evaluate": measure_evaluate,
        "growth": measure_growth,
        "start": measure_start,
    }
    # The step takes turns with what it is compared with, so the three are measured together.
    has_step = bool({"step", "naive", "limit"} & set(settings.parts))
    chosen = [p for p in parts if p in settings.parts or (p == "step" and has_step)]
    with Bar("bench", show_progress) as bar:
        for number, part in enumerate(chosen):
            parts[part](settings, findings, subprogress(bar.update, number, len(chosen)))
        bar.update(1.0)
    return findings


def measure_step(settings: Settings, findings: Findings, on_progress: Progress) -> None:
    """Measure the training step, the naive one and the speed of matrix products, in turns."""
    case, recipe = asdict(settings.base), settings.base.resolve()
    # The step is between the two that it is compared with, next to both of them in time.
    options: dict[str, tuple[str, dict[str, Any], dict[str, Any]]] = {
        "naive": ("naive", {"case": case}, {"steps": settings.steps}),
        "step": ("training", {"cases": {"base": case}}, {"case": "base", "steps": settings.steps}),
        "limit": ("gemm", {"sizes": settings.gemm_sizes}, {}),
    }
    with ExitStack() as stack:
        sides: dict[str, Callable[..., Any]] = {}
        workers = []
        for part, (name, made_with, measured_with) in options.items():
            if part in settings.parts:
                worker = stack.enter_context(start_side(name, **made_with))
                sides[part] = partial(worker.measure, **measured_with)
                workers.append(worker)
        for worker in workers:
            worker.wait()  # nothing is measured while another process still starts
        if "step" in sides:
            sides["phases"] = partial(sides["step"], phases=True)
        results = take_turns(sides, settings.turns, on_progress)

    images = recipe.train.batch_size * recipe.train.accumulate
    for name in ("step", "naive"):
        if name in results:
            speeds = [images / seconds for seconds in results[name]]
            findings.put(f"{name}.images_per_s", absolute(speeds), "images/s")
            findings.put(f"{name}.seconds", absolute(results[name]), "s")
    if "limit" in results:
        operations = step_operations(recipe)
        for name, count in operations.items():
            findings.put(f"limit.gflop.{name}", Figure(count / 1e9), "GFLOP")
        speeds = [speed / 1e9 for speed in results["limit"]]
        findings.put("limit.gflop_per_s", absolute(speeds), "GFLOP/s")
        results["limit"] = [sum(operations.values()) / speed for speed in results["limit"]]
        findings.put("limit.seconds", absolute(results["limit"]), "s")
    if "step" in results:
        findings.put("step.ratio_to_naive", _ratio_of(results, "naive", "step"))
        findings.put("step.share_of_limit", _ratio_of(results, "limit", "step"), "%")
        put_fractions(findings, results["phases"])


def put_fractions(findings: Findings, turns: Sequence[Mapping[str, float]]) -> None:
    """Add the fraction of the step that each phase takes, from one dictionary a turn."""
    for phase in PHASES:
        fractions = [fractions[phase] for fractions in turns]
        findings.put(f"step.shares.{phase}", per_turn(fractions), "%")


def _ratio_of(results: dict[str, list[Any]], upper: str, lower: str) -> Figure:
    if upper not in results:
        return Figure.missing(f"part {upper!r} was not measured")
    return ratio(results[upper], results[lower])


def measure_evaluate(settings: Settings, findings: Findings, on_progress: Progress) -> None:
    """Measure tasks per second of the rules `prototype` and `adapt`, and of loops over tasks."""
    with start_side(
        "rules", tasks=settings.tasks, loop_tasks=settings.loop_tasks, hidden=settings.hidden
    ) as worker:
        sides = {
            f"{rule}{' loop' if loop else ''}": partial(worker.measure, rule=rule, loop=loop)
            for rule in ("prototype", "adapt")
            for loop in (False, True)
        }
        speeds = take_turns(sides, settings.turns, on_progress)
    for rule in ("prototype", "adapt"):
        batched, loop = speeds[rule], speeds[f"{rule} loop"]
        findings.put(f"evaluate.{rule}.tasks_per_s", absolute(batched), "tasks/s")
        findings.put(f"evaluate.{rule}.loop_tasks_per_s", absolute(loop), "tasks/s")
        findings.put(f"evaluate.{rule}.ratio_to_loop", ratio(batched, loop))


def measure_start(settings: Settings, findings: Findings, on_progress: Progress) -> None:
    """Measure the time to the first answer: help, and an image classified cold and warm."""
    with tempfile.TemporaryDirectory() as name, start_side("warm", folder=name) as worker:
        worker.wait()
        folder = Path(name)
        classify = ["classify", folder / "classifier.psco", folder / "image.png", "--device", "cpu"]
        sides: dict[str, Callable[[], float]] = {
            "help": partial(_command_seconds, ["--help"]),
            "cold": partial(_command_seconds, classify),
            "warm": worker.measure,
        }
        times = take_turns(sides, settings.turns, on_progress)
    findings.put("start.help_s", absolute(times["help"]), "s")
    findings.put("start.classify_cold_s", absolute(times["cold"]), "s")
    findings.put("start.classify_warm_ms", absolute([1e3 * t for t in times["warm"]]), "ms")


def _command_seconds(words: Iterable[object]) -> float:
    command = [sys.executable, "-m", "psco", *map(str, words)]
    begin = time.perf_counter()
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    return time.perf_counter() - begin
