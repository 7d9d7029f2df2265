"""Few-shot tasks as indices into a labelled image set; a seed gives the same on any machine."""

from __future__ import annotations

import zlib
from dataclasses import dataclass, replace
from pathlib import Path
from zipfile import BadZipFile

import numpy as np

from psco.errors import InputError, counted, quoted
from psco.files.atomic import atomic_path

FORMAT = 1
_CHUNK = 1 << 22  # random numbers drawn at a time, 32 MiB


@dataclass(frozen=True)
class Tasks:
    """T tasks of N ways, with K shots and Q queries per way.

    Parameters
    ----------
    support
        (T, N, K) int64 indices into the image set; row n of a task is its class n.
    query
        (T, N, Q) int64 indices, none of which is a support of the same task.
    left_out
        Number of classes that are never drawn, as they have fewer than K + Q images.
    seed
        The seed of the tasks.
    """

    support: np.ndarray
    query: np.ndarray
    left_out: int = 0
    seed: int = 0

    def __len__(self) -> int:
        return len(self.support)

    @property
    def setting(self) -> tuple[int, int]:
        """Ways and shots."""
        return int(self.support.shape[1]), int(self.support.shape[2])

    def first(self, number: int) -> Tasks:
        """Return the first tasks, or all if there are fewer."""
        return replace(self, support=self.support[:number], query=self.query[:number])

    def check(self, labels: np.ndarray) -> None:
        """Raise InputError unless each row of every task is of one class of these labels (n,)."""
        together = np.concatenate([self.support, self.query], axis=2)  # (T, N, K + Q)
        fits = together.min() >= 0 and together.max() < len(labels)
        if fits:
            classes = labels[together]
            rows = np.sort(classes[:, :, 0], axis=1)  # (T, N)
            fits = bool((classes == classes[:, :, :1]).all() and (np.diff(rows, axis=1) > 0).all())
        if not fits:
            raise InputError(
                f"the tasks were drawn from another data set, not from these "
                f"{counted(len(labels), 'image')}"
            )

    def save(self, path: Path) -> None:
        """Write the tasks to a .npz file for `load_tasks`."""
        with atomic_path(path) as temporary, temporary.open("wb") as file:
            about = np.array([FORMAT, self.left_out, self.seed], dtype=np.uint64)
            np.savez_compressed(file, support=self.support, query=self.query, about=about)


def load_tasks(path: Path) -> Tasks:
    """Read tasks from a file.

    Raises
    ------
    InputError
        If the file is missing, damaged or of another format.
    """
    try:
        with np.load(path, allow_pickle=False) as file:
            version, left_out, seed = (int(number) for number in file["about"])
            support, query = file["support"], file["query"]
    except FileNotFoundError:
        raise InputError(f"there is no task file {quoted(path)}") from None
    except (OSError, ValueError, KeyError, EOFError, BadZipFile, zlib.error) as error:
        raise InputError(f"{quoted(path)} is not a task file, or is damaged ({error})") from None
    if version != FORMAT or support.ndim != 3 or query.shape[:2] != support.shape[:2]:
        raise InputError(f"{quoted(path)} has format {version}; this version reads {FORMAT}")
    return Tasks(support.astype(np.int64), query.astype(np.int64), left_out, seed)


def sample_tasks(
    labels: np.ndarray, ways: int, shots: int, queries: int, tasks: int, seed: int
) -> Tasks:
    """Draw tasks: uniformly drawn classes and images, without replacement.

    The first tasks depend neither on the number of tasks nor on the version of numpy: the random
    numbers are the raw output of the counter-based Philox generator.

    Parameters
    ----------
    labels
        (n,) class of each image.
    ways, shots, queries, tasks
        N, K, Q and T, all at least 1.
    seed
        At least 0.

    Raises
    ------
    InputError
        If there are too few classes or images for such a task.
    """
    for name, value in {"ways": ways, "shots": shots, "queries": queries, "tasks": tasks}.items():
        if value < 1:
            raise InputError(f"{name} must be at least 1, not {value}")
    drawer = TaskDrawer(labels, ways, shots, queries)
    images = drawer.draw(np.random.Philox(key=seed), tasks)
    return Tasks(images[..., :shots], images[..., shots:], drawer.left_out, seed)


class TaskDrawer:
    """Draws tasks from the classes that have enough images.

    Parameters
    ----------
    labels
        (n,) class of each image; negative for an image that is never drawn.
    ways, shots, queries
        N, K and Q.

    Raises
    ------
    InputError
        If there are too few classes or images for such a task.
    """

    def __init__(self, labels: np.ndarray, ways: int, shots: int, queries: int) -> None:
        order = np.argsort(labels, kind="stable")
        self._order = order[np.count_nonzero(labels < 0) :]
        _, starts, counts = np.unique(labels[self._order], return_index=True, return_counts=True)
        enough = counts >= shots + queries
        self._starts, self._counts = starts[enough], counts[enough]
        if len(self._counts) < ways:
            raise InputError(
                f"{ways}-way {shots}-shot tasks with {queries} queries need {ways} classes of at "
                f"least {shots + queries} images; {len(self._counts)} of {len(enough)} classes "
                f"have enough"
            )
        self._ways, self._images = ways, shots + queries
        self.left_out = int((~enough).sum())

    def draw(self, stream: np.random.Philox, tasks: int) -> np.ndarray:
        """Return the (T, N, K + Q) indices of the next tasks of a stream of random numbers."""
        counts, ways = self._counts, self._ways
        per_task = len(counts) + ways * int(counts.max())
        picked = []
        for begin in range(0, tasks, step := max(1, _CHUNK // per_task)):
            number = min(step, tasks - begin)
            random = stream.random_raw(number * per_task).reshape(number, per_task)
            classes = _smallest(random[:, : len(counts)], ways)  # (t, N)
            keys = random[:, len(counts) :].reshape(number, ways, -1)  # (t, N, most images)
            absent = np.arange(keys.shape[2]) >= counts[classes][..., None]
            keys[absent] = np.iinfo(np.uint64).max
            members = _smallest(keys, self._images)  # (t, N, K + Q)
            picked.append(self._order[self._starts[classes][..., None] + members])
        return np.concatenate(picked)


def _smallest(keys: np.ndarray, number: int) -> np.ndarray:
    # The positions of the smallest random keys along the last axis, without replacement.
    return np.argsort(keys, axis=-1, kind="stable")[..., :number]
