"""Signals that ask training to end early: it finishes its step and saves first."""

from __future__ import annotations

import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any

# What a person sends from the keyboard, and what Slurm and other schedulers send before they kill:
# SIGTERM at the end of the time or on preemption, SIGUSR1 where --signal=USR1@120 asks for it.
KEYBOARD = "SIGINT"
SCHEDULER = ("SIGTERM", "SIGUSR1")
_SIGNALS = [getattr(signal, name) for name in (KEYBOARD, *SCHEDULER) if hasattr(signal, name)]


@dataclass
class StopRequest:
    """Whether training was asked to end; call it to know.

    Attributes
    ----------
    by
        Name of the first signal that asked, such as ``"SIGTERM"``; None as long as none has.
    """

    by: str | None = None

    def __call__(self) -> bool:
        """Say whether to stop."""
        return self.by is not None


@contextmanager
def stop_on_signals(tell: bool = True) -> Iterator[StopRequest]:
    """Turn the first Ctrl-C, SIGTERM or SIGUSR1 into a request to stop; the second one is itself.

    Signals that the program around has handlers for are left to it, all but Ctrl-C. In other
    threads than the main one no signal can be handled, and nothing is. With ``tell`` a line on
    stderr says so.
    """
    request = StopRequest()
    before: dict[int, Any] = {}

    def ask(number: int, _frame: object) -> None:
        signal.signal(number, before[number])
        if request.by is None:
            request.by = signal.Signals(number).name
            again = "; press Ctrl-C again to quit at once" if request.by == KEYBOARD else ""
            with suppress(RuntimeError):  # the signal came in the middle of another print
                if tell:
                    print(f"{request.by}: stopping after this step{again}", file=sys.stderr)

    if threading.current_thread() is threading.main_thread():
        for number in _SIGNALS:
            handler = signal.getsignal(number)
            if number == signal.SIGINT or handler == signal.SIG_DFL:
                before[number] = handler
                signal.signal(number, ask)
    try:
        yield request
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def leave_signals_to_parent(_worker: int) -> None:
    """Ignore, in a worker process, what schedulers and terminals send to a whole job.

    The parent decides when to stop, and needs its workers until it has finished the step.
    """
    for number in _SIGNALS:
        signal.signal(number, signal.SIG_IGN)
