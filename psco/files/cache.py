"""The folder for prepared data."""

from __future__ import annotations

import os
from pathlib import Path


def cache_dir() -> Path:
    """Return the folder in which prepared data are cached.

    ``PSCO_CACHE`` if set, else ``psco`` under ``XDG_CACHE_HOME`` or ``~/.cache``.
    """
    if chosen := os.environ.get("PSCO_CACHE"):
        return Path(chosen).expanduser()
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "psco"
