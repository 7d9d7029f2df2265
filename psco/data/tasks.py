"""Few-shot tasks as indices into a labelled image set, the same for a seed on any machine."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from psco.errors import InputError

_CHUNK = 1 << 22  # random numbers drawn at a time: 32 MiB


@dataclass(frozen=True)
class Tasks:
    """T tasks of N ways with K shots and Q queries per way.

    Parameters
    ----------
    support
        (T, N, K) int64 indices into the image set; row n of a task is its class n.
    query
        (T, N, Q) int64 indices, none of which is a support of the same task.
    left_out
        Number of classes with fewer than K + Q images, which are never drawn.
    """

    support: np.ndarray
    query: np.ndarray
    left_out: int = 0

    def __len__(self) -> int:
        return len(self.support)


def sample_tasks(
    labels: np.ndarray, ways: int, shots: int, queries: int, tasks: int, seed: int
) -> Tasks:
    """Draw tasks: classes uniformly, then images of a class uniformly, all without replacement.

    The first tasks do not depend on how many are drawn, nor on the version of numpy: the random
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
        If the images cannot fill such a task.
    """
    for name, value in {"ways": ways, "shots": shots, "queries": queries, "tasks": tasks}.items():
        if value < 1:
            raise InputError(f"{name} must be at least 1, not {value}")
    order = np.argsort(labels, kind="stable")
    _, starts, counts = np.unique(labels[order], return_index=True, return_counts=True)
    enough = counts >= shots + queries
    starts, counts = starts[enough], counts[enough]
    if len(counts) < ways:
        raise InputError(
            f"{ways}-way {shots}-shot tasks with {queries} queries need {ways} classes of at least "
            f"{shots + queries} images; {len(counts)} of {len(enough)} classes have as many"
        )

    per_task = len(counts) + ways * int(counts.max())
    stream = np.random.Philox(key=seed)
    picked = []
    for begin in range(0, tasks, step := max(1, _CHUNK // per_task)):
        number = min(step, tasks - begin)
        random = stream.random_raw(number * per_task).reshape(number, per_task)
        classes = _smallest(random[:, : len(counts)], ways)  # (t, N)
        keys = random[:, len(counts) :].reshape(number, ways, -1)  # (t, N, most images)
        absent = np.arange(keys.shape[2]) >= counts[classes][..., None]
        keys[absent] = np.iinfo(np.uint64).max
        members = _smallest(keys, shots + queries)  # (t, N, K + Q)
        picked.append(order[starts[classes][..., None] + members])
    images = np.concatenate(picked)
    return Tasks(images[..., :shots], images[..., shots:], int((~enough).sum()))


def _smallest(keys: np.ndarray, number: int) -> np.ndarray:
    # Positions of the smallest random keys along the last axis: a draw without replacement.
    return np.argsort(keys, axis=-1, kind="stable")[..., :number]
