"""How step time and memory grow with sizes, and what PsCo costs beyond MoCo v2."""

from __future__ import annotations

from dataclasses import asdict
from functools import partial

from benchmarks.speed.findings import Findings
from benchmarks.speed.settings import Settings
from benchmarks.speed.sides import start_side
from benchmarks.timing.cases import Case
from benchmarks.timing.stats import Figure, absolute, growth_slope, overhead, slope
from benchmarks.timing.turns import Progress, subprogress, take_turns

# An overhead is a small difference of large numbers, so it needs more turns than a ratio; steps of
# the small network vary more and cost less.
_MORE_TURNS = (6, 2)


def measure_growth(settings: Settings, findings: Findings, on_progress: Progress) -> None:
    """Measure step times at several sizes, the overhead over MoCo v2, and peak memory."""
    base = settings.base
    axes = {
        "queue": {m: base.with_(f"method.queue_size={m}") for m in settings.queues},
        "batch": {n: base.with_(f"train.batch_size={n}") for n in settings.batches},
        "shots": {k: base.with_(f"method.shots={k}") for k in settings.shots},
    }
    networks = {_network(case): case for case in (base, settings.large)}
    sections = 2 + len(networks)

    cases = {f"{axis} {size}": case for axis in axes for size, case in axes[axis].items()}
    progress = subprogress(on_progress, 0, sections)
    times = _step_times(cases, settings.growth_steps, settings.turns, progress)
    for axis, sizes in axes.items():
        by_size = {size: times[f"{axis} {size}"] for size in sizes}
        for size, seconds in by_size.items():
            findings.put(f"growth.{axis}.seconds.{size}", absolute(seconds), "s")
        findings.put(f"growth.{axis}.slope", growth_slope(list(by_size), list(by_size.values())))

    for number, (name, case) in enumerate(networks.items()):
        pair = {f"psco {name}": case, f"moco {name}": _moco(case)}
        progress = subprogress(on_progress, 1 + number, sections)
        psco, moco = _step_times(
            pair, settings.steps, _MORE_TURNS[number] * settings.turns, progress
        ).values()
        findings.put(f"growth.{name}.seconds", absolute(psco), "s")
        findings.put(f"growth.{name}.overhead_over_moco", overhead(psco, moco), "%")

    progress = subprogress(on_progress, sections - 1, sections)
    _measure_memory(axes["queue"], settings.growth_steps, findings, progress)


def _step_times(
    cases: dict[str, Case], steps: int, turns: int, on_progress: Progress
) -> dict[str, list[float]]:
    """Return by case the seconds of a step, one value a turn; all in one process."""
    with start_side("training", cases={name: asdict(case) for name, case in cases.items()}) as side:
        sides = {name: partial(side.measure, case=name, steps=steps) for name in cases}
        return take_turns(sides, turns, on_progress)


def _measure_memory(
    cases: dict[int, Case], steps: int, findings: Findings, on_progress: Progress
) -> None:
    # A peak belongs to a process, so each size has its own; peaks do not vary, so one is enough.
    peaks = {}
    for number, (size, case) in enumerate(cases.items()):
        on_progress(number / len(cases), f"memory, queue {size}")
        with start_side("memory", case=asdict(case)) as side:
            peaks[size] = side.measure(steps=steps)
        findings.put(f"growth.memory.mb.{size}", Figure(peaks[size]), "MB")
    findings.put("growth.memory.slope", Figure(slope(list(peaks), list(peaks.values()))))


def _network(case: Case) -> str:
    recipe = case.resolve()
    return f"{recipe.backbone.name}_{recipe.image.size}"


def _moco(case: Case) -> Case:
    # MoCo v2 has no predictor; queue, views and everything else are those of the case.
    size = case.resolve().method.options["queue_size"]
    return case.with_(f"method={{name: moco, queue_size: {size}}}", "heads.predictor=false")
