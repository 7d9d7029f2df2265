"""A long run under fire (`make soak`): nothing may be lost, left behind, or grow.

In the first half of the time a run with workers is killed, or asked to stop, at random moments and
resumed. In the second half it is left alone while its memory is watched. Then a summary is printed;
the exit code is 1 if anything is wrong.

    python tests/soak.py [--minutes 30]
"""

from __future__ import annotations

import argparse
import os
import random
import signal
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import suppress
from multiprocessing.process import BaseProcess
from pathlib import Path

from child import begin, kill, said

from psco.training.checkpoint import load_resume

RECIPE = [
    "image={size: 16, source_size: 16, channels: 1, mean: [0.5], std: [0.25]}",
    "backbone={name: conv4, width: 16}",
    "heads={hidden: 256, out: 64}",
    "method={name: psco, shots: 4, queue_size: 4096}",
    "train={steps: 100000000, batch_size: 32, decay: constant, log_steps: 5}",
]
KEPT = {"config.yaml", "env.json", "metrics.csv", "resume.pt", "model.safetensors"}
MOST_GROWTH = 0.05
GRACE = 20.0  # seconds in which workers notice that their parent is gone


def resident(pid: int) -> int:
    """Give the memory of a process and of all in its session, in kB."""
    return sum(
        int(line.split()[1])
        for member in session_of(pid)
        for line in _lines(Path(f"/proc/{member}/status"))
        if line.startswith("VmRSS:")
    )


def session_of(pid: int) -> Iterator[int]:
    """Give the processes in the session that a process leads."""
    for path in Path("/proc").glob("[0-9]*/stat"):
        for line in _lines(path):
            fields = line.rpartition(")")[2].split()  # state, parent, group, session, ...
            if int(fields[3]) == pid and fields[0] != "Z":
                yield int(path.parent.name)


def _lines(path: Path) -> list[str]:
    with suppress(OSError):  # it has ended meanwhile
        return path.read_text().splitlines()
    return []


class Soak:
    """The run, and what is wrong with it so far."""

    def __init__(self, out: Path) -> None:
        self.out = out
        self.wrong: list[str] = []
        self.kills = self.stops = self.step = 0

    def sitting(self) -> BaseProcess:
        # Workers are forked, so two of them share what their parent had at their start.
        return begin(self.out, RECIPE, checkpoint_steps=20, workers=2)

    def disturb(self, seconds: float) -> None:
        """Let it run for a while, then kill it or ask it to stop, and look at what is left."""
        process = self.sitting()
        process.join(seconds)
        if not process.is_alive():
            self.wrong.append(f"a sitting ended by itself: {said(self.out)}")
        elif random.random() < 0.3:
            self.stops += 1
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGTERM)
            process.join(60)
            # Before training has begun there is nothing to save, and the signal simply ends it.
            if process.exitcode not in (0, -signal.SIGTERM):
                self.wrong.append(f"SIGTERM: exit code {process.exitcode}: {said(self.out)}")
                kill(process)
        else:
            self.kills += 1
            process.kill()  # without its workers: they have to notice
            process.join()
        self.check_processes(process.pid)
        self.check_step()

    def check_processes(self, pid: int) -> None:
        until = time.monotonic() + GRACE
        while left := list(session_of(pid)):
            if time.monotonic() > until:
                self.wrong.append(f"{len(left)} processes outlive their run")
                for process in left:
                    os.kill(process, signal.SIGKILL)
                return
            time.sleep(0.2)

    def check_step(self) -> None:
        state = load_resume(self.out) if self.out.exists() else None
        step = 0 if state is None else state["step"]
        if step < self.step:
            self.wrong.append(f"the run went back from step {self.step} to {step}")
        self.step = step

    def watch(self, seconds: float) -> tuple[float, float]:
        """Let it run undisturbed; give its memory in MB early and late."""
        process, begun = self.sitting(), time.monotonic()
        samples = []
        while (age := time.monotonic() - begun) < seconds and process.is_alive():
            samples.append((age / seconds, resident(process.pid) / 1024))
            time.sleep(max(0.05, seconds / 1000))
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGTERM)
        process.join(60)
        if process.exitcode != 0:
            self.wrong.append(f"exit code {process.exitcode}: {said(self.out)}")
        self.check_processes(process.pid)
        self.check_step()
        early = statistics.median(rss for age, rss in samples if 0.2 < age < 0.4)
        late = statistics.median(rss for age, rss in samples if age > 0.8)
        if late > (1 + MOST_GROWTH) * early:
            self.wrong.append(f"memory grew from {early:.0f} to {late:.0f} MB")
        return early, late


def files(*folders: Path) -> set[Path]:
    return {path for folder in folders if folder.is_dir() for path in folder.iterdir()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--minutes", type=float, default=30.0)
    seconds = 60 * parser.parse_args().minutes
    with tempfile.TemporaryDirectory() as folder:
        os.environ["TMPDIR"] = temporary = f"{folder}/tmp"
        Path(temporary).mkdir()
        soak = Soak(Path(folder) / "run")
        places = (Path("/dev/shm"), Path(temporary))
        before, begun = files(*places), time.monotonic()
        while time.monotonic() - begun < seconds / 2:
            soak.disturb(random.uniform(0, seconds / 60))
        early, late = soak.watch(seconds / 2)
        for leaked in sorted(files(*places) - before):
            soak.wrong.append(f"{leaked} was left behind")
        for path in sorted(files(soak.out)):
            if path.name not in KEPT:
                soak.wrong.append(f"{path.name} was left in the run folder")
    print(
        f"{soak.kills} kills, {soak.stops} stops, {soak.step} steps; memory {early:.0f} MB early, "
        f"{late:.0f} MB late ({late / early - 1:+.1%}, at most {MOST_GROWTH:+.0%})"
    )
    for line in soak.wrong:
        print(f"wrong: {line}")
    sys.exit(bool(soak.wrong))


if __name__ == "__main__":
    main()
