"""Many small operations without Python between them, on all cores at once."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

import torch

Part = TypeVar("Part")
Result = TypeVar("Result")


def compile_script(function: Callable[..., Any]) -> Callable[..., Any]:
    """Compile a function of tensors by TorchScript, and with it those that it calls.

    A loop over operations of some microseconds loses a tenth of its time to Python, and threads
    that run it wait for Python's lock on top. TorchScript has neither. It is deprecated in favour
    of compilers that need one for C++ on the user's machine, which is no option here; should torch
    drop it, the function runs as it is.

    Parameters
    ----------
    function
        With annotations, in the part of Python that TorchScript knows.

    Returns
    -------
    Callable
        A `torch.jit.ScriptFunction`; or the function itself where that cannot be made.
    """
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)
            compiled: Callable[..., Any] = torch.jit.script(function)
    except Exception:  # gone, no source code, a word it does not know: the function is still right
        return function
    return compiled


def on_one_core_each(work: Callable[[Part], Result], parts: Sequence[Part]) -> list[Result]:
    """Do the work for all parts, as many at once as torch has threads, and each in one thread.

    Where operations are small this is faster than to share each of them among the threads: they
    do not wait for one another, and what a part works on stays in the cache of one core. The work
    should hold Python's lock for little of its time.
    """
    threads = torch.get_num_threads()
    workers = min(threads, len(parts))
    if workers < 2:
        return [work(part) for part in parts]
    try:
        with ThreadPoolExecutor(workers, "psco", torch.set_num_threads, (1,)) as pool:
            return list(pool.map(work, parts))
    finally:
        # Setting it in a thread also changes what threads to come begin with.
        torch.set_num_threads(threads)
