"""A look at the installation: what works, what is missing, what would be slow."""

from __future__ import annotations

import importlib
import os
from importlib import metadata
from typing import NamedTuple

from psco.errors import BROKEN_IMPORT, first_line, install_advice
from psco.files.atomic import atomic_path
from psco.files.cache import cache_dir
from psco.ops.native import absence
from psco.training.environment import environment, keep_freed_memory

EXTRAS = {"torchvision": "vision", "timm": "vision", "tensorboard": "tensorboard"}


class Finding(NamedTuple):
    """One line: ``ok``, ``absent`` (optional), ``warning`` or ``broken``."""

    verdict: str
    subject: str
    detail: str


def examine() -> list[Finding]:
    """Check versions, threads, allocator, kernels, optional packages and the cache folder."""
    about = environment()
    findings = [
        Finding("ok", "psco", f"{about['psco']} on Python {about['python']}, {about['platform']}"),
        Finding(
            "ok", "torch", f"{about['torch']}, {about['cuda'] or 'no GPU: training on the CPU'}"
        ),
        _threads(about["threads"]),
        _allocator(),
        _kernels(),
    ]
    for name, version in about["packages"].items():
        findings.append(Finding("ok" if version else "broken", name, version or "not installed"))
    for name, extra in EXTRAS.items():
        findings.append(_optional(name, extra))
    return [*findings, _cache()]


def _threads(threads: int) -> Finding:
    available = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    verdict = "ok" if threads == available else "warning"
    return Finding(verdict, "threads", f"torch uses {threads} of {available} available cores")


def _allocator() -> Finding:
    if keep_freed_memory():
        return Finding("ok", "allocator", "glibc keeps freed memory between steps")
    return Finding("warning", "allocator", "not tuned (no glibc, or PSCO_MALLOC=default)")


def _kernels() -> Finding:
    problem = absence()
    if problem is None:
        return Finding("ok", "kernels", "compiled for this processor")
    return Finding("absent", "kernels", f"optional, training is slower without: {problem}")


def _optional(name: str, extra: str) -> Finding:
    version, problem = _try_import(name)
    if problem is None:
        return Finding("ok", name, version or "")
    if version is None:
        return Finding("absent", name, f"optional; {install_advice(extra)}")
    return Finding("warning", name, f"{version} is installed but does not import: {problem}")


def _cache() -> Finding:
    folder = cache_dir()
    try:
        with atomic_path(folder / ".writable") as aside:
            aside.write_text("")
        (folder / ".writable").unlink()
    except OSError as error:
        return Finding("broken", "cache", f"{folder} cannot be written ({error}); set PSCO_CACHE")
    return Finding("ok", "cache", str(folder))


def _try_import(module: str, package: str | None = None) -> tuple[str | None, str | None]:
    """Return the version of an optional module (None if absent) and why it fails (None if not)."""
    try:
        version = metadata.version(package or module)
    except metadata.PackageNotFoundError:
        version = None
    try:
        importlib.import_module(module)
    except BROKEN_IMPORT as error:
        return version, first_line(error)
    return version or "unknown", None
