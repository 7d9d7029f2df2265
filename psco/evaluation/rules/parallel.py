"""Many small operations on all cores at once, each core with some of its own."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

import torch

Part = TypeVar("Part")
Result = TypeVar("Result")


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
