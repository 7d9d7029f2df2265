"""Reading damaged files one after the other, with limits on time and memory."""

from __future__ import annotations

import resource
import signal
import time
import warnings
from collections.abc import Iterable
from contextlib import redirect_stderr
from dataclasses import dataclass, field
from io import StringIO
from pathlib import Path
from typing import Any

from psco.errors import PscoError
from tests.fuzz.mutate import mutated
from tests.fuzz.targets import TARGETS, with_right_checksum

SECONDS = 10
MEMORY_KB = 2_000_000
FILES_GB = 1


class TooSlowError(Exception):
    """A file took longer than the limit."""


@dataclass
class Result:
    """What happened to the inputs of one target.

    Parameters
    ----------
    read, refused
        Inputs that were read although they were damaged, and those with an error of one line.
    failures, reasons
        Inputs that broke a promise, by their seeds, and how.
    slowest
        The longest time in seconds.
    """

    target: str
    read: int = 0
    refused: int = 0
    slowest: float = 0.0
    failures: dict[int, bytes] = field(default_factory=dict)
    reasons: dict[int, str] = field(default_factory=dict)

    def __str__(self) -> str:
        line = (
            f"{self.target:22} {self.read:6} read {self.refused:6} refused "
            f"{len(self.failures):4} failures, slowest {self.slowest:.2f} s"
        )
        return "\n".join([line, *(f"  seed {s}: {r}" for s, r in list(self.reasons.items())[:5])])


def fuzz(name: str, seeds: Iterable[int], folder: Path) -> Result:
    """Read one damaged file for every seed; even seeds have a right checksum."""
    target, result = TARGETS[name], Result(name)
    good = target.content()
    place = folder / name
    place.mkdir()
    for other, content in target.beside().items():
        (place / other).write_bytes(content)
    signal.signal(signal.SIGALRM, _too_slow)
    for seed in seeds:
        content = mutated(good, seed)
        if seed % 2 == 0:
            content = with_right_checksum(content)
        (place / target.name).write_bytes(content)
        before, began = _peak_kb(), time.monotonic()
        reason = None
        signal.alarm(SECONDS)
        try:
            with warnings.catch_warnings(), redirect_stderr(StringIO()):
                warnings.simplefilter("ignore")
                target.read(place)
            result.read += 1
        except PscoError as error:
            result.refused += 1
            if "\n" in str(error) or not str(error).isprintable():
                reason = f"not one line: {str(error)[:80]!r}"
        except TooSlowError:
            reason = f"longer than {SECONDS} s"
        except Exception as error:  # a raw error is what this program looks for
            reason = f"{type(error).__name__}: {str(error)[:120]!r}"
        finally:
            signal.alarm(0)
        result.slowest = max(result.slowest, time.monotonic() - began)
        if _peak_kb() - before > MEMORY_KB:
            reason = f"{(_peak_kb() - before) / 1e6:.1f} GB"
        if reason is not None:
            result.failures[seed], result.reasons[seed] = content, reason
    return result


def _peak_kb() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


def _too_slow(*_: Any) -> None:
    raise TooSlowError
