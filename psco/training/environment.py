"""The process that trains: its memory allocator and a record of its surroundings."""

from __future__ import annotations

import ctypes
import os
import platform
import sys
from importlib import metadata
from pathlib import Path
from typing import Any

from psco.version import __version__

# From <malloc.h>: the sizes from which glibc maps memory anew, and gives freed memory back.
_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3
_ONE_GIB = 1 << 30


def keep_freed_memory() -> bool:
    """Let glibc reuse large freed blocks instead of unmapping them.

    The activations of a training step are blocks of tens of megabytes. By default glibc maps and
    unmaps each of them in every step, and the page faults cost a third of the step or more; with
    both thresholds at 1 GiB the blocks stay in the heap. The process keeps its peak memory in turn.
    Set ``PSCO_MALLOC=default`` to leave the allocator alone.

    Returns
    -------
    bool
        Whether the allocator was set: False without glibc, or when told to leave it.
    """
    if os.environ.get("PSCO_MALLOC") == "default" or platform.libc_ver()[0] != "glibc":
        return False
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (OSError, AttributeError):
        return False
    return bool(
        mallopt(_M_MMAP_THRESHOLD, _ONE_GIB) == 1 and mallopt(_M_TRIM_THRESHOLD, _ONE_GIB) == 1
    )


def environment() -> dict[str, Any]:
    """Describe the software and the machine, for ``env.json`` and ``psco doctor``."""
    import torch

    packages = ("numpy", "pillow", "lightning-fabric", "safetensors", "scikit-learn")
    return {
        "psco": __version__,
        "python": platform.python_version(),
        "torch": torch.__version__,
        "packages": {name: _version(name) for name in packages},
        "platform": platform.platform(),
        "cpus": os.cpu_count(),
        "threads": torch.get_num_threads(),
        "cuda": torch.cuda.get_device_name() if torch.cuda.is_available() else None,
        "command": _command(),
    }


def _command() -> list[str]:
    """Give the command line without the place of the program."""
    name = Path(sys.argv[0]).name
    return ["psco" if name == "__main__.py" else name, *sys.argv[1:]]


def _version(package: str) -> str | None:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None
