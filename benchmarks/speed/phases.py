"""Where the time of a training step goes, measured from outside.

A step passes through phases one after the other. For the duration of a measurement, a few functions
that the loop and the method call anyway are wrapped, and the wrappers switch the clock from phase
to phase; neither loop nor method knows of it. Time between two wrapped calls counts towards the
phase that the first one opened: after the momentum forward pass comes the assignment, until the
shots are selected; what follows inside the method are the losses.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Any

import psco.methods.psco as paper
from psco.methods.momentum import EMA

if TYPE_CHECKING:  # importing the names of the phases need not import Lightning
    from psco.training.loop import Loop

PHASES = (
    "data_views",
    "online_forward",
    "momentum_forward",
    "assignment",
    "losses",
    "backward",
    "optimiser_ema",
    "other",
)


class PhaseClock:
    """Adds up the time of each phase; at any moment, exactly one phase is running.

    Only the thread that made the clock is timed. Work in other threads counts only while the step
    waits for it.

    Attributes
    ----------
    seconds
        By phase.
    """

    def __init__(self) -> None:
        self.seconds = dict.fromkeys(PHASES, 0.0)
        self._thread = threading.get_ident()
        self._phase, self._since = "other", time.perf_counter()

    def enter(self, phase: str) -> str:
        """Begin a phase and return the one that was running."""
        before = self._phase
        if threading.get_ident() == self._thread:
            now = time.perf_counter()
            self.seconds[before] += now - self._since
            self._phase, self._since = phase, now
        return before

    def wrap(
        self, function: Callable[..., Any], phase: str, after: str | None = None
    ) -> Callable[..., Any]:
        """Return a function that runs as a phase.

        When it returns, ``after`` begins, or by default the phase that was running before.
        """

        def timed(*args: Any, **options: Any) -> Any:
            before = self.enter(phase)
            try:
                return function(*args, **options)
            finally:
                self.enter(after or before)

        return timed

    def fractions(self) -> dict[str, float]:
        """Return the fraction of the time since the clock was made in each phase; sum 1."""
        self.enter(self._phase)
        total = sum(self.seconds.values())
        return {phase: seconds / total for phase, seconds in self.seconds.items()}


@contextmanager
def watching(loop: Loop, clock: PhaseClock) -> Iterator[None]:
    """Let a clock time the phases of a loop that trains PsCo; afterwards all is as it was."""
    method = loop.method.module
    batches = loop.feed.batches

    def timed_batches(start: int) -> Iterator[Any]:
        source = batches(start)
        following = clock.wrap(lambda: next(source), "data_views")
        while True:
            yield following()

    with ExitStack() as stack:

        def wrapped(owner: Any, name: str, phase: str, after: str | None = None) -> None:
            stack.enter_context(
                replaced(owner, name, clock.wrap(getattr(owner, name), phase, after))
            )

        stack.enter_context(replaced(loop.feed, "batches", timed_batches))
        wrapped(loop, "_views", "data_views")
        wrapped(method, "loss", "losses")
        for part in (method.backbone, method.projector, method.predictor):
            wrapped(part, "forward", "online_forward")
        momentum = method.ema.network
        wrapped(momentum.backbone, "forward", "momentum_forward")
        wrapped(momentum.projector, "forward", "momentum_forward", after="assignment")
        wrapped(paper, "select_shots", "assignment", after="losses")
        wrapped(loop.fabric, "backward", "backward")
        wrapped(EMA, "update", "optimiser_ema")
        wrapped(loop.optimizer, "step", "optimiser_ema")
        wrapped(loop.optimizer, "zero_grad", "optimiser_ema")
        yield


@contextmanager
def replaced(owner: Any, name: str, value: Any) -> Iterator[None]:
    """Set an attribute of an object, class or module, and restore it afterwards."""
    own = vars(owner)
    absent = object()
    before = own.get(name, absent)
    setattr(owner, name, value)
    try:
        yield
    finally:
        if before is absent:
            delattr(owner, name)
        else:
            setattr(owner, name, before)
