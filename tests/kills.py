"""Random kills: every killed run ends with the same bytes, and nothing is left behind.

    python tests/kills.py [--kills 300] [--out results/durability/kills.json]

Each kind of work is killed at random moments and started again until it ends. Its result is then
compared with that of an undisturbed run. The counts are written as JSON; the exit code is 1 if
anything differs.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import sys
import tempfile
import time
from collections.abc import Callable
from multiprocessing.process import BaseProcess
from pathlib import Path

from child import PICTURES, begin_ranks, command, kill, said
from PIL import Image

from psco.files.atomic import is_leftover
from psco.files.checksums import hash_file

RECIPE = [
    "image={size: 16, source_size: 16, channels: 1, mean: [0.5], std: [0.25]}",
    "views.view_a={crop: {}, flip: {}}",
    "views.view_b={crop: {}}",
    "backbone={name: conv4, width: 8}",
    "heads={hidden: 32, out: 16}",
    "method={name: psco, shots: 2, queue_size: 50}",
    "train={steps: 40, batch_size: 16, learning_rate: 0.1, log_steps: 1}",
]
COMPARED = ("model.safetensors", "calibration.json")
Start = Callable[[Path], list[BaseProcess]]


def train(ranks: int) -> Start:
    return lambda out: begin_ranks(out, RECIPE, ranks, checkpoint_steps=3)


def program(out: Path) -> list[BaseProcess]:
    """Start the program: it packs the pictures, trains, and calibrates the run."""
    pictures = out.parent / "pictures"
    if not pictures.exists():
        pictures.mkdir()
        for number, pixels in enumerate(PICTURES):
            Image.fromarray(pixels[:, :, 0]).save(pictures / f"{number}.png")
    words = [word for setting in RECIPE for word in ("--set", setting)]
    environment = {"PSCO_CACHE": str(out.parent / "cache")}
    started = command(out, "pretrain", pictures, "--out", out, "--recipe", "own-images", "--resume",
                      "--checkpoint-steps", 3, *words, environment=environment)  # fmt: skip
    return [started]


KINDS = {"one rank": train(1), "two ranks": train(2), "packing and calibration": program}


def content(out: Path) -> dict[str, str]:
    return {name: hash_file(out / name) for name in COMPARED if (out / name).exists()}


def finish(processes: list[BaseProcess], out: Path, problems: list[str]) -> None:
    for process in processes:
        process.join(300)
        if process.exitcode != 0:
            problems.append(f"exit code {process.exitcode}: {said(out)[-300:]}")
            kill(process)


def killed(start: Start, kills: int, folder: Path) -> dict[str, object]:
    """Kill runs of one kind, several times each, and compare how they end."""
    problems: list[str] = []
    began = time.monotonic()
    finish(start(folder / "whole"), folder / "whole", problems)
    length = time.monotonic() - began
    expected, done, runs = content(folder / "whole"), 0, 0
    while done < kills and len(problems) < 10:
        out = folder / "run"
        shutil.rmtree(out, ignore_errors=True)
        shutil.rmtree(folder / "cache", ignore_errors=True)
        for _ in range(min(5, kills - done)):
            processes = start(out)
            time.sleep(random.uniform(0, length))
            done += any(process.is_alive() for process in processes)
            for process in processes:
                kill(process)
        finish(start(out), out, problems)
        runs += 1
        if content(out) != expected:
            problems.append(f"run {runs} ended with other bytes")
        left = [p.name for p in out.iterdir() if is_leftover(p) or p.name == ".lock"]
        if left:
            problems.append(f"run {runs} left {left}")
    return {"kills": done, "runs": runs, "seconds of a run": round(length, 1), "problems": problems}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--kills", type=int, default=300)
    parser.add_argument("--out", type=Path, default=Path("results/durability/kills.json"))
    options = parser.parse_args()
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    results = {}
    for name, start in KINDS.items():
        with tempfile.TemporaryDirectory() as folder:
            results[name] = killed(start, options.kills // len(KINDS), Path(folder))
        print(name, results[name], flush=True)
    options.out.parent.mkdir(parents=True, exist_ok=True)
    options.out.write_text(json.dumps(results, indent=1) + "\n")
    sys.exit(any(result["problems"] for result in results.values()))


if __name__ == "__main__":
    main()
