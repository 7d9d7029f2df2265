"""When the next checkpoint is due."""

from __future__ import annotations

import time

from psco.errors import InputError

DEFAULT_MINUTES = 5.0


class CheckpointInterval:
    """Decides after each step whether to write a checkpoint.

    Parameters
    ----------
    minutes, steps
        Write one every ``minutes`` minutes, every ``steps`` steps, or both; every 5 minutes if
        neither is given.

    Raises
    ------
    InputError
        If a value is not positive.
    """

    def __init__(self, minutes: float | None = None, steps: int | None = None) -> None:
        for name, value in {"checkpoint_minutes": minutes, "checkpoint_steps": steps}.items():
            if value is not None and value <= 0:
                raise InputError(f"{name} must be > 0, got {value}")
        self._minutes = DEFAULT_MINUTES if minutes is None and steps is None else minutes
        self._steps = steps
        self._last = time.monotonic()

    def __call__(self, step: int, now: float) -> bool:
        """Whether a checkpoint is due after ``step`` steps at the monotonic time ``now``."""
        by_time = self._minutes is not None and now - self._last >= 60 * self._minutes
        by_step = self._steps is not None and step % self._steps == 0
        if by_time or by_step:
            self._last = now
        return by_time or by_step
