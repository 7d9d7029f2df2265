"""Few-shot tasks from any labelling of the images: true classes, clusters, or many partitions."""

from __future__ import annotations

import numpy as np

from psco.data.tasks import TaskDrawer
from psco.errors import InputError

UNLABELLED = -1  # an image that belongs to no class of a labelling


class LabellingDrawer:
    """Draws tasks from one or several labellings of the same images.

    A task first draws a labelling, then its classes, then their images, each uniformly and without
    replacement. Classes with too few images are never drawn.

    Parameters
    ----------
    labels
        (n,) or (P, n) int, the class of each image in each of P labellings; `UNLABELLED` for an
        image that takes no part.
    ways, shots, queries
        N, K and Q of a task.

    Raises
    ------
    InputError
        If a labelling has too few classes with enough images.
    """

    def __init__(self, labels: np.ndarray, ways: int, shots: int, queries: int) -> None:
        labels = np.atleast_2d(labels)
        if labels.ndim != 2 or 0 in labels.shape:
            raise InputError(
                f"labels must have shape (n,) or (P, n) with n and P at least 1, got {labels.shape}"
            )
        self._drawers = [TaskDrawer(one, ways, shots, queries) for one in labels]

    def draw(self, stream: np.random.Philox, tasks: int) -> np.ndarray:
        """Return the (T, N, K + Q) indices of the next tasks of a stream of random numbers.

        The K supports of a class come before its Q queries. One labelling gives the tasks that
        `TaskDrawer` draws from it.
        """
        if len(self._drawers) == 1:
            return self._drawers[0].draw(stream, tasks)
        number = np.uint64(len(self._drawers))
        chosen = (stream.random_raw(tasks) % number).tolist()
        return np.concatenate([self._drawers[which].draw(stream, 1) for which in chosen])
