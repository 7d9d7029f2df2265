"""The whole suite runs beside a torchvision that is installed but broken, as a user's may be."""

from __future__ import annotations

import os
import shutil
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
    """Keep the caches of the user out of it; one for all workers, as the glyphs take seconds."""
    base = tmp_path_factory.getbasetemp()
    folder = base.parent if "PYTEST_XDIST_WORKER" in os.environ else base
    os.environ["PSCO_CACHE"] = str(folder / "psco-cache")
    os.environ["PSCO_NATIVE_DIR"] = str(folder / "psco-native")


@pytest.fixture
def without_kernels(monkeypatch):
    """Do as if there were no compiler."""
    from psco.ops.native import build

    monkeypatch.setenv("PSCO_KERNELS", "off")
    build.forget()
    yield
    monkeypatch.undo()
    build.forget()


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


@pytest.fixture(scope="session")
def few_glyphs():
    """Give 30 labelled classes of 20 glyphs each, (600, 28, 28, 1)."""
    from psco.data import ImageSet
    from psco.data.sets.glyphs import draw_glyphs

    images = draw_glyphs(range(3), seed=5, characters=10).reshape(-1, 28, 28, 1)
    classes = tuple(f"character{number:02d}" for number in range(30))
    return ImageSet(images, np.repeat(np.arange(30), 20), classes, "glyphs", "test")


@pytest.fixture(scope="session")
def raw_pixels():
    """Return the baseline without a network, for images of 16 px."""
    from psco import Encoder, load_recipe

    changes = ["method.name=pixels", "image.size=16", "image.source_size=16"]
    return Encoder.untrained(load_recipe("glyphs", changes))


@pytest.fixture
def quick_calibration(monkeypatch):
    """Let the end of a run take no longer than its few steps."""
    monkeypatch.setattr("psco.classifier.calibration._SUPPORTS", 60)
    monkeypatch.setattr("psco.classifier.calibration._IMAGES", 100)


@pytest.fixture
def no_notes_yet(monkeypatch):
    """Forget the conversions that this process has reported already."""
    monkeypatch.setattr("psco.classifier.images._conversions_reported", set())


@pytest.fixture(scope="session")
def small():
    """Overrides that make the recipe of the glyphs small for any method."""
    return [
        "backbone.width=8",
        "heads={hidden: 32, out: 16}",
        "train.batch_size=60",
        "train.warmup_steps=0",
        "train.log_steps=1",
    ]


@pytest.fixture(scope="module")
def chromium():
    """Return a browser: PSCO_BROWSER, the one on PATH, or the one of Playwright.

    For the tests of one module: while Playwright runs, nothing else can use asyncio.
    """
    api = pytest.importorskip("playwright.sync_api", reason="needs Playwright")
    named = os.environ.get("PSCO_BROWSER")
    program = named or shutil.which("chromium") or shutil.which("google-chrome")
    quiet = ["--no-sandbox", "--disable-gpu", "--disable-quic", "--disable-background-networking"]
    with api.sync_playwright() as playwright:
        try:
            browser = playwright.chromium.launch(executable_path=program, args=quiet)
        except api.Error as error:
            pytest.skip(f"needs Chromium, which does not start: {str(error).splitlines()[0]}")
        yield browser
        browser.close()
