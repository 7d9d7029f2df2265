"""Ending early: training stops after its step on a signal; workers end with their parent."""

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

KEYBOARD_SIGNAL = "SIGINT"
# Sent by Slurm and other schedulers before they kill a job: SIGTERM at the time limit or on
# preemption, SIGUSR1 with --signal=USR1@120.
SCHEDULER_SIGNALS = ("SIGTERM", "SIGUSR1")
_PARENT_POLL_SECONDS = 2.0
_HANDLED = [
    getattr(signal, name)
    for name in (KEYBOARD_SIGNAL, *SCHEDULER_SIGNALS)
    if hasattr(signal, name)  # Windows has no SIGUSR1
]


@dataclass
class StopRequest:
    """Whether training was asked to stop; call it to find out.

    Attributes
    ----------
    signal
        Name of the first signal received, such as ``"SIGTERM"``; None if there was none.
    """

    signal: str | None = None

    def __call__(self) -> bool:
        """Whether to stop."""
        return self.signal is not None


@contextmanager
def stop_on_signals(announce: bool = True) -> Iterator[StopRequest]:
    """Turn the first Ctrl-C, SIGTERM or SIGUSR1 into a request to stop; the second acts as usual.

    Except for Ctrl-C, signals for which the program already has a handler are left to it. Python
    handles signals in the main thread only; in other threads this does nothing.

    Parameters
    ----------
    announce
        Print a line on stderr when a signal is received.
    """
    request = StopRequest()
    previous: dict[int, Any] = {}

    def handle(number: int, _frame: object) -> None:
        signal.signal(number, previous[number])
        if request.signal is not None:
            return
        request.signal = signal.Signals(number).name
        hint = "; press Ctrl-C again to quit at once" if number == signal.SIGINT else ""
        with suppress(RuntimeError):  # the signal came in the middle of another print
            if announce:
                print(f"{request.signal}: stopping after this step{hint}", file=sys.stderr)

    if threading.current_thread() is threading.main_thread():
        for number in _HANDLED:
            handler = signal.getsignal(number)
            if number == signal.SIGINT or handler == signal.SIG_DFL:
                previous[number] = handler
                signal.signal(number, handle)
    try:
        yield request
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)


def follow_parent(parent: int, _worker: int = 0) -> None:
    """Let a worker process live exactly as long as its parent.

    The worker ignores the signals that schedulers and terminals send to a whole job: the parent
    decides when to stop and needs its workers until then. If the parent is gone, even by SIGKILL,
    the worker exits. DataLoader's workers also watch their parent, but only the one they see at
    their start, so a worker whose parent was killed before that would wait forever.

    Parameters
    ----------
    parent
        Process id of the parent.
    """
    for number in _HANDLED:
        signal.signal(number, signal.SIG_IGN)
    threading.Thread(target=_exit_without, args=(parent,), daemon=True).start()


def _exit_without(parent: int) -> None:
    while os.getppid() == parent:
        time.sleep(_PARENT_POLL_SECONDS)
    os._exit(1)
