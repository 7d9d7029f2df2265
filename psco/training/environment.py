"""The training process: its memory allocator, and a record of software and machine."""

from __future__ import annotations

import ctypes
import os
import platform
import sys
from importlib import metadata, resources
from pathlib import Path
from typing import Any

import torch

from psco.ops.native import absence
from psco.version import __version__

# From <malloc.h>: the sizes above which glibc maps new memory, and returns freed memory.
_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3
_ONE_GIB = 1 << 30


def keep_freed_memory() -> bool:
    """Let glibc reuse large freed blocks instead of unmapping them.

    The activations of a training step are blocks of tens of megabytes. By default glibc maps and
    unmaps each of them in every step, and the page faults take a third of the step or more. With
    both thresholds at 1 GiB the blocks stay in the heap; in return, the process keeps its peak
    memory. ``PSCO_MALLOC=default`` leaves the allocator unchanged.

    Returns
    -------
    bool
        Whether the allocator was changed: False without glibc or with ``PSCO_MALLOC=default``.
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
    """Return versions, machine and command, for ``env.json`` and ``psco doctor``."""
    packages = ("numpy", "pillow", "lightning-fabric", "safetensors", "scikit-learn")
    return {
        "psco": __version__,
        "python": platform.python_version(),
        "torch": torch.__version__,
        "packages": {name: _version(name) for name in packages},
        "platform": platform.platform(),
        "cpus": os.cpu_count(),
        "threads": torch.get_num_threads(),
        "kernels": _kernels(),
        "cuda": torch.cuda.get_device_name() if torch.cuda.is_available() else None,
        "command": _command(),
    }


def _kernels() -> dict[str, Any]:
    """Return which C kernels can take part in a step, or why there are none."""
    reason = absence()
    if reason is not None:
        return {"used": False, "reason": reason}
    files = {file.name for file in resources.files("psco.ops.native").iterdir()}
    # A kernel is a C file with a Python module of the same name; the others are shared code.
    names = sorted(name[:-2] for name in files if name.endswith(".c") and name[:-1] + "py" in files)
    return {"used": True, "names": names}


def _command() -> list[str]:
    """Return the command line without the path of the program."""
    name = Path(sys.argv[0]).name
    return ["psco" if name == "__main__.py" else name, *sys.argv[1:]]


def _version(package: str) -> str | None:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None
