"""psco doctor: what works in this installation, what is missing, what is slow."""

from __future__ import annotations

import importlib
import json
import os
from importlib import metadata
from typing import NamedTuple

import typer

from psco.cli.common import Debug, Json, command
from psco.errors import BROKEN_IMPORT, first_line, install_advice

EXTRAS = {"torchvision": "vision", "timm": "vision", "tensorboard": "tensorboard"}


@command
def doctor(as_json: Json = False, debug: Debug = False) -> None:
    """Check the installation: versions, threads, kernels, optional packages, cache."""
    findings = examine()
    if as_json:
        typer.echo(json.dumps([finding._asdict() for finding in findings]))
    else:
        for finding in findings:
            typer.echo(f"{finding.verdict:<7} {finding.subject:<18} {finding.detail}")
    if any(finding.verdict == "broken" for finding in findings):
        raise typer.Exit(1)


class Finding(NamedTuple):
    """One line of the diagnosis; the verdict is ok, absent (optional), warning or broken."""

    verdict: str
    subject: str
    detail: str


def examine() -> list[Finding]:
    """Check versions, threads, allocator, kernels, optional packages and the cache folder."""
    from psco.training.environment import environment

    about = environment()
    versions = f"{about['psco']} on Python {about['python']}, {about['platform']}"
    device = about["cuda"] or "no GPU: training on the CPU"
    findings = [
        Finding("ok", "psco", versions),
        Finding("ok", "torch", f"{about['torch']}, {device}"),
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
    from psco.training.environment import keep_freed_memory

    if keep_freed_memory():
        return Finding("ok", "allocator", "glibc keeps freed memory between steps")
    return Finding("warning", "allocator", "not tuned (no glibc, or PSCO_MALLOC=default)")


def _kernels() -> Finding:
    from psco.ops.native import absence

    problem = absence()
    if problem is None:
        return Finding("ok", "kernels", "compiled for this processor")
    return Finding("absent", "kernels", f"optional; training is slower without them: {problem}")


def _optional(name: str, extra: str) -> Finding:
    version, problem = _try_import(name)
    if problem is None:
        return Finding("ok", name, version or "")
    if version is None:
        return Finding("absent", name, f"optional; {install_advice(extra)}")
    return Finding("warning", name, f"{version} is installed but does not import: {problem}")


def _cache() -> Finding:
    from psco.files.atomic import atomic_path
    from psco.files.cache import cache_dir

    folder = cache_dir()
    try:
        with atomic_path(folder / ".writable") as temporary:
            temporary.write_text("")
        (folder / ".writable").unlink()
    except OSError as error:
        return Finding("broken", "cache", f"{folder} cannot be written ({error}); set PSCO_CACHE")
    return Finding("ok", "cache", str(folder))


def _try_import(module: str, package: str | None = None) -> tuple[str | None, str | None]:
    """Return the version of a module, None if absent, and why it fails to import, None if not."""
    try:
        version = metadata.version(package or module)
    except metadata.PackageNotFoundError:
        version = None
    try:
        importlib.import_module(module)
    except BROKEN_IMPORT as error:
        return version, first_line(error)
    return version or "unknown", None
