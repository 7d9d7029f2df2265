"""A headless browser that draws pages, skipped where there is none."""

from __future__ import annotations

import shutil
import subprocess

import numpy as np
import pytest
from PIL import Image


@pytest.fixture
def browser(tmp_path):
    """Return a function that opens a page with given options of Chromium and returns stdout."""
    program = shutil.which("chromium") or shutil.which("google-chrome")
    if program is None:
        pytest.skip("needs Chromium")

    def run(html: str, *options: str) -> str:
        (tmp_path / "page.html").write_text(html)
        command = [
            program, "--headless", "--no-sandbox", "--disable-gpu", "--no-first-run",
            "--disable-background-networking", "--disable-component-update", "--disable-sync",
            "--disable-quic", f"--user-data-dir={tmp_path / 'profile'}", *options,
            (tmp_path / "page.html").as_uri(),
        ]  # fmt: skip
        done = subprocess.run(command, check=True, capture_output=True, timeout=120)
        return done.stdout.decode()

    return run


@pytest.fixture
def screenshot(browser, tmp_path):
    """Return a function that draws a page: (h, w, 3) pixels."""

    def draw(html: str, *options: str) -> np.ndarray:
        file = tmp_path / "page.png"
        browser(html, "--window-size=900,1600", f"--screenshot={file}", *options)
        return np.asarray(Image.open(file).convert("RGB")).astype(int)

    return draw


@pytest.fixture
def count():
    """Return a function that counts the pixels of about a colour."""

    def pixels_of(pixels: np.ndarray, colour: str) -> int:
        wanted = np.array(list(bytes.fromhex(colour)))
        return int((np.abs(pixels - wanted).sum(axis=2) < 12).sum())

    return pixels_of
