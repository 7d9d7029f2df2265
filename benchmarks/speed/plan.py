"""What `psco bench` measures: the settings of the paper, or toy ones that only exercise it."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from benchmarks.speed.inputs import Case
from benchmarks.speed.limit import GEMM_SIZES
from psco.errors import InputError, unknown_name

PARTS = ("step", "naive", "limit", "evaluate", "growth", "start")


@dataclass(frozen=True)
class Plan:
    """Sizes and lengths of a benchmark.

    Parameters
    ----------
    parts
        Which of ``PARTS`` to measure.
    repeats, steps
        Turns of every side, and training steps in a turn, besides those of the warm-up.
    base, large
        The setting that everything is measured at, and the larger network.
    queues, batches, shots
        Sizes at which step times show growth; the base's own size is among them.
    gemm_sizes
        Sides of the matrices whose product is the limit.
    tasks, loop_tasks, hidden
        Few-shot tasks of a turn, fewer for the slow loop, and the width of the heads.
    """

    parts: tuple[str, ...] = PARTS
    repeats: int = 7
    steps: int = 9
    base: Case = field(default_factory=Case)
    large: Case = field(default_factory=lambda: Case("miniimagenet", images=4096))
    queues: tuple[int, ...] = (4096, 16384, 65536)
    batches: tuple[int, ...] = (64, 128, 256, 512, 1024)
    shots: tuple[int, ...] = (1, 4, 16, 64)
    gemm_sizes: tuple[int, ...] = GEMM_SIZES
    tasks: int = 64
    loop_tasks: int = 8
    hidden: int = 2048

    @property
    def growth_steps(self) -> int:
        """Steps of a turn in the part `growth`, which has many and large sides."""
        return max(1, self.steps // 3)


_TOY = ("backbone.width=4", "heads={hidden: 16, out: 8}", "train.batch_size=8")
QUICK = Plan(
    repeats=3,
    steps=2,
    base=Case("omniglot", (*_TOY, "method.queue_size=32"), 64),
    large=Case("miniimagenet", (*_TOY, "method.queue_size=32", "train.batch_size=4"), 64),
    queues=(32, 64),
    batches=(4, 8),
    shots=(1, 2),
    gemm_sizes=(64, 96),
    tasks=4,
    loop_tasks=2,
    hidden=16,
)


def make_plan(
    parts: tuple[str, ...] = (),
    repeats: int | None = None,
    steps: int | None = None,
    quick: bool = False,
) -> Plan:
    """Settle a plan; None and no parts leave what the full or the quick plan has.

    Raises
    ------
    InputError
        For a part that does not exist, or numbers below 1.
    """
    plan = QUICK if quick else Plan()
    for part in parts:
        if part not in PARTS:
            raise unknown_name("part", part, PARTS)
    for name, value in {"repeats": repeats, "steps": steps}.items():
        if value is not None and value < 1:
            raise InputError(f"--{name} must be at least 1, not {value}")
    return replace(
        plan,
        parts=tuple(part for part in PARTS if not parts or part in parts),
        repeats=repeats or plan.repeats,
        steps=steps or plan.steps,
    )
