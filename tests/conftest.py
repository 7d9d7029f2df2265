"""The whole suite runs beside a torchvision that is installed but broken, as a user's may be."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import settings

STUBS = Path(__file__).parent / "stubs"
sys.path.insert(0, str(STUBS))
os.environ["PYTHONPATH"] = os.pathsep.join(
    filter(None, [str(STUBS), os.environ.get("PYTHONPATH", "")])
)
# Two workers of pytest share the machine; more threads would only wait for one another.
os.environ.setdefault("OMP_NUM_THREADS", "1")
# How long an example takes says something about the machine, not about the code.
settings.register_profile("psco", deadline=None)
settings.load_profile("psco")


@pytest.fixture(autouse=True, scope="session")
def cache(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Keep the cache of the user out of it; one for all workers, as the glyphs take seconds."""
    base = tmp_path_factory.getbasetemp()
    folder = (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / "psco-cache"
    os.environ["PSCO_CACHE"] = str(folder)


@pytest.fixture
def psco():
    """Run the command line in a process of its own; gives the finished process."""

    def run(*words: object, **options: object) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "psco", *map(str, words)]
        return subprocess.run(command, capture_output=True, text=True, timeout=300, **options)

    return run


@pytest.fixture(scope="session")
def tiny():
    """Overrides that make a recipe train in a second or two."""
    return [
        "image={size: 16, source_size: 16, channels: 1, mean: [0.5], std: [0.25]}",
        "views.view_a={crop: {}, flip: {}}",
        "views.view_b={crop: {}}",
        "backbone={name: conv4, width: 8}",
        "heads={hidden: 32, out: 16}",
        "method={name: psco, shots: 2, queue_size: 50}",
        "train={steps: 12, batch_size: 16, learning_rate: 0.1, log_steps: 2}",
    ]


@pytest.fixture
def pictures() -> np.ndarray:
    """Give 60 small images, (60, 20, 20, 1), of noise that differs from image to image."""
    return np.random.default_rng(0).integers(0, 256, (60, 20, 20, 1), dtype=np.uint8)
