"""One OpenMP runtime: the kernels run on torch's threads or not at all.

Two runtimes in a process have two pools of threads, which compete for the cores; some pairs abort.
"""

from __future__ import annotations

import ctypes
import re
import struct
from pathlib import Path
from typing import NamedTuple

import torch

_RUNTIME = re.compile(r"lib(gomp|omp|iomp)")
_DYNAMIC, _NEEDED, _STRINGS, _SONAME = 2, 1, 5, 14  # of ELF: a segment type, tags


class Linkage(NamedTuple):
    """What a shared library is called, and the libraries that it loads."""

    soname: str | None
    needed: list[str]


def torch_runtime() -> Path:
    """Return torch's own libgomp.

    Raises
    ------
    OSError
        If torch brings none, or several.
    """
    folder = Path(torch.__file__).parent / "lib"
    found = sorted(folder.glob("libgomp*"))
    if len(found) != 1:
        names = ", ".join(path.name for path in found) or "none"
        raise OSError(f"torch must bring one libgomp to share its threads, found {names}")
    return found[0]


def refuse_other_runtime(library: Path, runtime: Path) -> None:
    """Raise if a library, which is not loaded yet, would load another runtime than this one.

    Raises
    ------
    OSError
        With the name of the other one.
    """
    own = linkage(runtime).soname or runtime.name
    needed = [name for name in linkage(library).needed if _RUNTIME.match(name)]
    if others := [name for name in needed if name != own]:
        raise OSError(f"the compiler links {', '.join(others)} beside torch's {own}; set CC to gcc")
    if not needed:
        raise OSError(f"the compiler does not link torch's {own}; set CC to gcc")


def refuse_other_threads(library: ctypes.CDLL) -> None:
    """Raise if a loaded library starts its threads with another runtime than torch does.

    Raises
    ------
    OSError
        If the two have found different functions.
    """
    by_torch = ctypes.CDLL(str(Path(torch.__file__).parent / "lib" / "libtorch_cpu.so"))
    for name in ("GOMP_parallel", "omp_get_thread_num"):
        if _address(library, name) != _address(by_torch, name):
            raise OSError(f"the kernels and torch have different OpenMP runtimes ({name})")


def linkage(path: Path) -> Linkage:
    """Return the dynamic section of an ELF library of 64 bits.

    Raises
    ------
    OSError
        If the file is something else.
    """
    data = path.read_bytes()
    if data[:6] != b"\x7fELF\x02\x01":
        raise OSError(f"{path.name} is not an ELF library of 64 bits, little-endian")
    try:
        (at,) = struct.unpack_from("<Q", data, 32)
        size, count = struct.unpack_from("<HH", data, 54)
        # Of a segment: type, flags, offset in the file, address, (physical address), size.
        segments = [struct.unpack_from("<IIQQQQ", data, at + i * size) for i in range(count)]
        (dynamic,) = [segment for segment in segments if segment[0] == _DYNAMIC]
        entries = struct.iter_unpack("<qQ", data[dynamic[2] : dynamic[2] + dynamic[5]])
        tags = [(tag, value) for tag, value in entries if tag]
        (strings,) = [value for tag, value in tags if tag == _STRINGS]
        (base,) = [
            strings - address + offset
            for kind, _, offset, address, _, length in segments
            if kind == 1 and address <= strings < address + length
        ]
    except (struct.error, ValueError):
        raise OSError(f"{path.name} is a damaged ELF library") from None

    def text(value: int) -> str:
        return data[base + value : data.index(b"\0", base + value)].decode(errors="replace")

    sonames = [text(value) for tag, value in tags if tag == _SONAME]
    return Linkage(
        sonames[0] if sonames else None, [text(value) for tag, value in tags if tag == _NEEDED]
    )


def _address(library: ctypes.CDLL, name: str) -> int | None:
    return ctypes.cast(getattr(library, name), ctypes.c_void_p).value
