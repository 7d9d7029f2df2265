"""Small pieces of work on all cores at once, each piece on one core."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

import torch

Piece = TypeVar("Piece")
Result = TypeVar("Result")


def on_one_core_each(work: Callable[[Piece], Result], pieces: Sequence[Piece]) -> list[Result]:
    """Return the results for all pieces, as many at a time as torch has threads.

    For small operations this is faster than splitting each operation over the threads: threads do
    not wait for each other, and the data of a piece stays in the cache of one core. The work must
    release the GIL most of the time.
    """
    threads = torch.get_num_threads()
    workers = min(threads, len(pieces))
    if workers < 2:
        return [work(piece) for piece in pieces]
    try:
        with ThreadPoolExecutor(workers, "psco", torch.set_num_threads, (1,)) as pool:
            return list(pool.map(work, pieces))
    finally:
        # Setting the number in a thread also changes the default of threads created later.
        torch.set_num_threads(threads)
