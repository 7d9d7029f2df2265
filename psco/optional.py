"""Optional packages: used when they work, named in one line when they do not.

A CPU build of torch beside a CUDA build of torchvision makes ``import torchvision`` raise
RuntimeError, and a missing shared library raises OSError, so ImportError alone is not enough.
"""

from __future__ import annotations

import importlib
from importlib import metadata
from types import ModuleType

from psco.errors import InputError

BROKEN = (ImportError, RuntimeError, OSError)


def require(module: str, extra: str) -> ModuleType:
    """Import an optional module, or say why that failed and which extra installs it.

    Raises
    ------
    InputError
        If the module is absent or broken.
    """
    try:
        return importlib.import_module(module)
    except BROKEN as error:
        raise InputError(
            f"{module} cannot be used ({_first_line(error)}); install it with "
            f"pip install 'psco[{extra}]'"
        ) from None


def health(module: str, package: str | None = None) -> tuple[str | None, str | None]:
    """Try an optional module.

    Returns
    -------
    tuple
        Its version and None, or None (absent) or its version (broken) and the reason.
    """
    try:
        version = metadata.version(package or module)
    except metadata.PackageNotFoundError:
        version = None
    try:
        importlib.import_module(module)
    except BROKEN as error:
        return version, _first_line(error)
    return version or "unknown", None


def _first_line(error: BaseException) -> str:
    return str(error).strip().split("\n")[0] or type(error).__name__
