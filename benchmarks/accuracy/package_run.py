"""Write the folder of a built-in encoder from a finished run, with its weights in half precision.

    python -m benchmarks.accuracy.package_run runs/omniglot-best psco/models/handwriting

The folder is a run folder like any other. Its hash, which is printed, belongs into
``psco/recipes/builtin.py``, and its accuracies into the card beside it.
"""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

from psco.evaluation.embed import load
from psco.files.checksums import hash_file, write_json
from psco.training.checkpoint import (
    CALIBRATION,
    CONFIG,
    ENVIRONMENT,
    FORMAT,
    MODEL,
    read_environment,
    save_model,
)

_FACTS = ("psco", "python", "torch", "data")  # what holds on any machine


def package(run: Path, out: Path) -> str:
    """Write the folder; return the SHA-256 of its weights."""
    encoder = load(run)
    out.mkdir(parents=True, exist_ok=True)
    save_model(out, encoder.method, encoder.recipe, encoder.steps, half=True)
    for name in (CONFIG, CALIBRATION):
        shutil.copyfile(run / name, out / name)
    facts = read_environment(run)
    kept = {name: facts[name] for name in _FACTS}
    write_json(out / ENVIRONMENT, {"format": FORMAT, **kept}, indent=2)
    return hash_file(out / MODEL)


if __name__ == "__main__":
    print(package(Path(sys.argv[1]), Path(sys.argv[2])))
