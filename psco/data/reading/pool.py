"""Work on the content of many files, on all cores, with little of it in memory at a time."""

from __future__ import annotations

import os
import threading
import warnings
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractContextManager, nullcontext
from typing import TypeVar

from psco.data.reading.source import FolderSource, Source
from psco.errors import InputError
from psco.progress import Bar

Result = TypeVar("Result")
_AHEAD = 4  # files per core that are being worked on or wait to be fetched


def each_file(
    source: Source,
    files: Sequence[str],
    work: Callable[[bytes, str], Result],
    *,
    title: str,
    progress: bool,
) -> Iterator[Result | InputError]:
    """Give ``work(content, name)`` of each file, in order.

    Threads do the work: they are as quick as processes here, since Pillow decodes without the
    interpreter's lock, and need neither a fork nor an importable main module.

    Parameters
    ----------
    source, files
        Where the files are, and which.
    work
        Called in several threads at a time.
    title, progress
        Of the progress bar, and whether there is one.

    Yields
    ------
    Result or InputError
        The error where reading the file or working on it raised one.
    """
    # An archive is read by one thread at a time: it has only one position in its file.
    parallel = isinstance(source, FolderSource)
    turn: AbstractContextManager[object] = nullcontext() if parallel else threading.Lock()

    def job(name: str) -> Result | InputError:
        try:
            with turn:
                content = source.read(name)
            return work(content, name)
        except InputError as error:
            return error

    workers = os.cpu_count() or 1
    waiting: deque[Future[Result | InputError]] = deque()
    with (
        ThreadPoolExecutor(workers) as pool,
        Bar(title, progress) as bar,
        warnings.catch_warnings(),
    ):
        warnings.simplefilter("ignore")  # Pillow's, about oddities that do no harm
        for number, name in enumerate(files, start=1):
            waiting.append(pool.submit(job, name))
            if len(waiting) == _AHEAD * workers:
                yield waiting.popleft().result()
                bar.update((number - len(waiting)) / len(files))
        while waiting:
            yield waiting.popleft().result()
            bar.update((len(files) - len(waiting)) / len(files))
