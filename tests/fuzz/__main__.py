"""Damage files at random and read them: a raw error, 10 seconds or 2 GB are failures.

    python -m tests.fuzz [--inputs 100000] [--seed 0] [--only resume,zip]

Failing inputs are kept in ``runs/fuzz``; the exit code is 1 if there are any.
"""

from __future__ import annotations

import argparse
import resource
import sys
import tempfile
from pathlib import Path

from tests.fuzz.run import FILES_GB, fuzz
from tests.fuzz.targets import TARGETS


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m tests.fuzz", description=__doc__.split("\n")[0]
    )
    parser.add_argument("--inputs", type=int, default=100_000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", default=",".join(TARGETS))
    options = parser.parse_args()
    resource.setrlimit(resource.RLIMIT_FSIZE, (FILES_GB << 30, FILES_GB << 30))
    names = options.only.split(",")
    each = max(1, options.inputs // len(names))
    failures = 0
    with tempfile.TemporaryDirectory() as folder:
        for name in names:
            result = fuzz(name, range(options.seed, options.seed + each), Path(folder))
            print(result, flush=True)
            failures += len(result.failures)
            for seed, content in result.failures.items():
                kept = Path("runs/fuzz") / f"{name}-{seed}"
                kept.parent.mkdir(parents=True, exist_ok=True)
                kept.write_bytes(content)
    print(f"{each * len(names):,} inputs, {failures} failures")
    sys.exit(bool(failures))


if __name__ == "__main__":
    main()
