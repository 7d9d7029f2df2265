"""The order in which an epoch visits the images."""

from __future__ import annotations

import numpy as np


def epoch_order(seed: int, epoch: int, images: int) -> np.ndarray:
    """Return the (n,) permutation of an epoch; it depends on the seed and the epoch alone."""
    random = np.random.Generator(np.random.Philox(key=[seed, epoch]))
    order: np.ndarray = random.permutation(images)
    return order
