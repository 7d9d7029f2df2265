"""Compile the kernels for the processor at hand, once, and call them."""

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

from psco.errors import PscoError
from psco.ops.native.openmp import refuse_other_runtime, refuse_other_threads, torch_runtime
from psco.ops.native.private import made_once, native_dir
from psco.ops.native.signatures import Argument, convert, declare

_FOLDER = Path(__file__).parent
_FLAGS = ["-O3", "-march=native", "-ffp-contract=fast", "-fno-math-errno", "-fopenmp", "-fPIC"]
_PATIENCE = 120  # seconds


def library() -> ctypes.CDLL | None:
    """Return the compiled kernels, or None where there are none.

    The compiler is ``CC``, by default ``cc``. The library is built in a few seconds and kept in
    a private folder (see ``private.py``) under a name made of source, compiler and processor.
    Without a compiler or such a folder everything works the same, only slower.
    ``PSCO_KERNELS=off`` leaves the kernels out; any other value is flags for the compiler.
    """
    return _load()[0]


def absence() -> str | None:
    """Return in one line why there are no kernels; None if there are."""
    return _load()[1]


def call(name: str, *arguments: Argument) -> None:
    """Call a kernel: tensors are passed as addresses, None as NULL, numbers as C declares them.

    Raises
    ------
    InputError
        If an argument is not what the kernel's prototype says.
    """
    _function(name)(*convert(name, arguments))


@cache
def size_of(name: str, *sizes: int) -> int:
    """Return a size that a kernel computes; each is asked for once."""
    return int(_function(name)(*convert(name, sizes)))


def floats(*shape: int) -> Tensor:
    """Return memory for float32 numbers on the CPU, whatever torch's defaults are."""
    return torch.empty(shape, dtype=torch.float32, device="cpu")


def scratch(threads: int, name: str, *sizes: int) -> Tensor:
    """Return memory for so many threads, each of the size that a kernel computes."""
    return floats(threads, size_of(name, *sizes))


def columns() -> int:
    """Return the width of a tile: matrix products take multiples of it."""
    return size_of("product_columns")


def forget() -> None:
    """Forget the kernels, so that the next call looks for them anew."""
    for remembered in (_load, size_of):
        remembered.cache_clear()


def _function(name: str) -> ctypes._NamedFuncPointer:
    kernels = library()
    if kernels is None:
        raise PscoError(f"{name}: there are no kernels ({absence()})")
    function: ctypes._NamedFuncPointer = getattr(kernels, name)
    return function


@cache
def _load() -> tuple[ctypes.CDLL | None, str | None]:
    if os.environ.get("PSCO_KERNELS") == "off":
        return None, "left out by PSCO_KERNELS=off"
    if os.name != "posix":
        return None, f"they need a POSIX system, not {os.name}"
    try:
        return _open(), None
    except subprocess.CalledProcessError as error:
        said = error.stderr.strip().splitlines() or [f"exit code {error.returncode}"]
        first = next((line for line in said if "error" in line), said[0])
        return None, f"{error.cmd[0]} cannot compile them: {first}"
    except (OSError, ValueError, AttributeError, subprocess.SubprocessError) as error:
        return None, (str(error).splitlines() or [type(error).__name__])[0]


def _open() -> ctypes.CDLL:
    if os.name != "posix":
        raise OSError("kernels are for POSIX systems only")
    runtime = torch_runtime()
    command, sources = _compiler(), sorted([*_FOLDER.glob("*.h"), *_FOLDER.glob("*.c")])
    # What the compiler defines by itself tells its version and what the processor can do.
    known = _run(*command, "-dM", "-E", "-x", "c", os.devnull)
    key = hashlib.sha256("\n".join([known, *command, str(runtime)]).encode())
    for source in sources:
        key.update(source.read_bytes())

    def make(target: Path) -> None:
        files = [str(source) for source in sources if source.suffix == ".c"]
        link = ["-Wl,--as-needed", str(runtime)]  # before the compiler's own libgomp
        _run(*command, "-shared", "-o", str(target), *files, *link)
        refuse_other_runtime(target, runtime)

    path = made_once(native_dir(), f"kernels-{key.hexdigest()[:20]}.so", make)
    kernels = ctypes.CDLL(str(path))
    refuse_other_threads(kernels)
    declare(kernels)
    return kernels


def _compiler() -> list[str]:
    flags = shlex.split(os.environ.get("PSCO_KERNELS", ""))
    return [*shlex.split(os.environ.get("CC", "cc")), *_FLAGS, *flags]


def _run(*command: str) -> str:
    done = subprocess.run(command, check=True, capture_output=True, text=True, timeout=_PATIENCE)
    return done.stdout
