"""Make each mistake in a copy of the sources and run the tests that must notice it.

    python -m tests.mutants [--only lock.py]

Survivors are printed; the exit code is 1 if there are any.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from tests.mutants.mistakes import MISTAKES, Mistake

ROOT = Path(__file__).parents[2]
_COPIED = ("psco", "tests", "benchmarks", "pyproject.toml")


def is_noticed(mistake: Mistake, copy: Path) -> bool:
    """Whether the tests fail with the mistake."""
    file = copy / mistake.file
    good = file.read_text(encoding="utf-8")
    file.write_text(good.replace(mistake.old, mistake.new), encoding="utf-8")
    command = [sys.executable, "-m", "pytest", "-n", "0", "-x", "-q", *mistake.tests.split(" ", 2)]
    try:
        done = subprocess.run(
            command, cwd=copy, env={**os.environ, "PYTHONPATH": str(copy)}, capture_output=True
        )
    finally:
        file.write_text(good, encoding="utf-8")
    return done.returncode == 1  # 2 and above: the tests could not be run


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m tests.mutants", description=__doc__.split("\n", 1)[0]
    )
    parser.add_argument("--only", default="", help="mistakes in files whose path contains this")
    chosen = [m for m in MISTAKES if parser.parse_args().only in m.file]
    survivors = 0
    with tempfile.TemporaryDirectory() as folder:
        for name in _COPIED:
            source = ROOT / name
            copy = shutil.copytree if source.is_dir() else shutil.copy
            copy(source, Path(folder) / name)
        for number, mistake in enumerate(chosen, start=1):
            noticed = is_noticed(mistake, Path(folder))
            survivors += not noticed
            word = "noticed " if noticed else "SURVIVED"
            print(f"{number:3}/{len(chosen)} {word} {mistake.file}: {mistake.old.strip()[:60]}",
                  flush=True)  # fmt: skip
    print(f"{len(chosen)} mistakes, {survivors} survivors")
    sys.exit(bool(survivors))


if __name__ == "__main__":
    main()
