"""What `make bench` measures: the settings of the paper, or toy ones for a trial run."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from benchmarks.speed.limit import GEMM_SIZES
from benchmarks.timing.cases import Case
from psco.errors import InputError, unknown_name

PARTS = ("step", "naive", "limit", "evaluate", "growth", "start")


@dataclass(frozen=True)
class Settings:
    """Sizes and lengths of a benchmark.

    Parameters
    ----------
    parts
        Which of ``PARTS`` to measure.
    turns, steps
        Number of turns, and training steps of each side in a turn after the warm-up.
    base, large
        The setting that everything is measured at, and a larger network.
    queues, batches, shots
        Sizes at which growth is measured; the base's own size is among them.
    gemm_sizes
        Sides of the matrices whose product is the limit.
    tasks, loop_tasks, hidden
        Few-shot tasks in a turn, fewer for the slow loop, and the width of the heads.
    """

    parts: tuple[str, ...] = PARTS
    turns: int = 12  # even, so that each order of the sides occurs equally often
    steps: int = 6
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
        """Steps in a turn of the part `growth`, which has many sides and large ones."""
        return max(1, self.steps // 2)


_TOY = ("backbone.width=4", "heads={hidden: 16, out: 8}", "train.batch_size=8")
QUICK = Settings(
    turns=6,
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


def choose_settings(
    parts: Sequence[str] = (),
    repeats: int | None = None,
    steps: int | None = None,
    quick: bool = False,
) -> Settings:
    """Return the full or the quick settings, with what was given in their place.

    Raises
    ------
    InputError
        For an unknown part, or numbers below 1.
    """
    settings = QUICK if quick else Settings()
    for part in parts:
        if part not in PARTS:
            raise unknown_name("part", part, PARTS)
    for name, value in {"repeats": repeats, "steps": steps}.items():
        if value is not None and value < 1:
            raise InputError(f"--{name} must be at least 1, got {value}")
    return replace(
        settings,
        parts=tuple(part for part in PARTS if not parts or part in parts),
        turns=repeats or settings.turns,
        steps=steps or settings.steps,
    )
