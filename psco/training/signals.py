"""How training ends early: on a signal, after its step; and workers with their parent."""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any

# What a person sends from the keyboard, and what Slurm and other schedulers send before they kill:
# SIGTERM at the end of the time or on preemption, SIGUSR1 where --signal=USR1@120 asks for it.
KEYBOARD = "SIGINT"
SCHEDULER = ("SIGTERM", "SIGUSR1")
_LOOK_EVERY = 2.0  # seconds
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


def follow_parent(parent: int, _worker: int = 0) -> None:
    """Let a worker process live as long as its parent, and no longer.

    It ignores what schedulers and terminals send to a whole job: the parent decides when to stop,
    and needs its workers until it has finished the step. When the parent is gone, killed perhaps,
    the worker ends by itself. DataLoader's workers look for their parent too, but take whoever it
    is when they begin, and would wait forever if theirs was killed before that.

    Parameters
    ----------
    parent
        Its process number.
    """
    for number in _SIGNALS:
        signal.signal(number, signal.SIG_IGN)
    threading.Thread(target=_end_without, args=(parent,), daemon=True).start()


def _end_without(parent: int) -> None:
    while os.getppid() == parent:
        time.sleep(_LOOK_EVERY)
    os._exit(1)
