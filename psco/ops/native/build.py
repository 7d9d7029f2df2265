"""Compiling the kernels for the processor at hand, once, where there is a compiler."""

from __future__ import annotations

import ctypes
import hashlib
import os
import shlex
import subprocess
from functools import cache
from pathlib import Path

import torch
from torch import Tensor

from psco.files.atomic import atomic_path
from psco.files.cache import cache_dir

_FOLDER = Path(__file__).parent
_FLAGS = ["-O3", "-march=native", "-ffp-contract=fast", "-fno-math-errno", "-fopenmp", "-fPIC"]
_PATIENCE = 120  # seconds

Argument = Tensor | int | float | None | list[Tensor] | list[int]


@cache
def library() -> ctypes.CDLL | None:
    """Give the compiled kernels, or None where they cannot be had.

    The compiler is ``CC``, by default ``cc``. What it makes in a second or two is kept in the cache
    under a name that tells source, compiler and processor. Without a compiler, or a place for the
    result, everything works the same, only slower. ``PSCO_KERNELS=off`` leaves the kernels out; any
    other value of it are flags for the compiler.
    """
    return None if absence() else ctypes.CDLL(str(_build()))


@cache
def absence() -> str | None:
    """Say in a line why there are no kernels; None if there are."""
    if os.environ.get("PSCO_KERNELS") == "off":
        return "left out by PSCO_KERNELS=off"
    try:
        ctypes.CDLL(str(_build()))
    except subprocess.CalledProcessError as error:
        said = error.stderr.strip().splitlines() or [f"exit code {error.returncode}"]
        return f"{error.cmd[0]} cannot compile them: {said[0]}"
    except (OSError, subprocess.SubprocessError) as error:
        return str(error).splitlines()[0]
    return None


def call(name: str, *arguments: Argument) -> None:
    """Call a kernel: tensors are passed as pointers to their numbers, None as NULL.

    Whole numbers are passed as ``int64_t``, others as ``double``.
    """
    getattr(library(), name)(*map(_as_c, arguments))


@cache
def size_of(name: str, *sizes: int) -> int:
    """Ask a kernel for a size, once for each input."""
    function = getattr(library(), name)
    function.restype = ctypes.c_int64
    return int(function(*map(_as_c, sizes)))


def floats(*shape: int) -> Tensor:
    """Give memory for so many numbers, of the kind that kernels know, whatever torch's default."""
    return torch.empty(shape, dtype=torch.float32, device="cpu")


def scratch(name: str, *sizes: int) -> Tensor:
    """Give memory for all threads, of the size that a kernel says."""
    return floats(torch.get_num_threads(), size_of(name, *sizes))


def columns() -> int:
    """Give the number of columns whose multiples the kernels' matrix products take."""
    return size_of("product_columns")


def _as_c(argument: Argument) -> object:
    if isinstance(argument, Tensor):
        return ctypes.c_void_p(argument.data_ptr())
    if isinstance(argument, list):
        if isinstance(argument[0], Tensor):
            return (ctypes.c_void_p * len(argument))(*[t.data_ptr() for t in argument])
        return (ctypes.c_int64 * len(argument))(*argument)
    if isinstance(argument, int):
        return ctypes.c_int64(argument)
    return None if argument is None else ctypes.c_double(argument)


@cache
def _build() -> Path:
    compiler = [*shlex.split(os.environ.get("CC", "cc")), *_FLAGS]
    compiler += shlex.split(os.environ.get("PSCO_KERNELS", ""))
    # What the compiler defines by itself tells its version and what the processor can do.
    known = _run(*compiler, "-dM", "-E", "-x", "c", os.devnull)
    sources = sorted([*_FOLDER.glob("*.h"), *_FOLDER.glob("*.c")])
    # With an OpenMP of their own the kernels would have threads of their own beside torch's.
    openmp = [str(path) for path in Path(torch.__file__).parent.glob("lib/libgomp*")]
    key = hashlib.sha256("\n".join([known, *compiler, *openmp]).encode())
    for source in sources:
        key.update(source.read_bytes())
    target = cache_dir() / f"kernels-{key.hexdigest()[:20]}.so"
    if not target.exists():
        files = [str(source) for source in sources if source.suffix == ".c"]
        with atomic_path(target) as aside:
            _run(*compiler, "-shared", "-o", str(aside), *files, "-Wl,--as-needed", *openmp)
    return target


def _run(*command: str) -> str:
    done = subprocess.run(command, check=True, capture_output=True, text=True, timeout=_PATIENCE)
    return done.stdout
