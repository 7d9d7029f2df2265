"""Processing of many files on all cores, with only a few of them in memory at a time."""

from __future__ import annotations

import os
import threading
import warnings
from collections import deque
from collections.abc import Callable, Generator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractContextManager, nullcontext
from typing import TypeVar

from psco.data.reading.source import FolderSource, Source
from psco.errors import InputError
from psco.progress import Bar

Result = TypeVar("Result")
_AHEAD = 4  # files per core that are in work, or done and not yet yielded


def each_file(
    source: Source,
    files: Sequence[str],
    work: Callable[[bytes, str], Result],
    *,
    title: str,
    progress: bool,
) -> Generator[Result | InputError, None, None]:
    """Yield ``work(content, name)`` for each file, in order.

    The work is done in threads. They are as fast as processes here, since Pillow releases the
    interpreter lock while it decodes, and need no fork and no importable main module. Closing the
    generator drops the files that wait and returns when no thread is at work.

    Parameters
    ----------
    source, files
        Where the files are, and their names.
    work
        Called in several threads at once.
    title, progress
        Title of the progress bar, and whether it is shown.

    Yields
    ------
    Result or InputError
        The error if reading or processing the file raised one.
    """
    # An archive is read by one thread at a time, as it has a single file position.
    parallel = isinstance(source, FolderSource)
    lock: AbstractContextManager[object] = nullcontext() if parallel else threading.Lock()

    def job(name: str) -> Result | InputError:
        try:
            with lock:
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
        warnings.simplefilter("ignore")  # of Pillow, about harmless oddities
        try:
            for number, name in enumerate(files, start=1):
                waiting.append(pool.submit(job, name))
                if len(waiting) == _AHEAD * workers:
                    yield waiting.popleft().result()
                    bar.update((number - len(waiting)) / len(files))
            while waiting:
                yield waiting.popleft().result()
                bar.update((len(files) - len(waiting)) / len(files))
        finally:
            pool.shutdown(cancel_futures=True)
