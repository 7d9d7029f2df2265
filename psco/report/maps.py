"""A map of embeddings: images laid out in the plane by their two main directions."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from psco.data.imageset import ImageArray
from psco.report.gallery import png_address
from psco.report.plots import COLOURS

_HEIGHT = 560  # pixels
_MARGIN = 4  # percent of the map that stays free at its edges


def embedding_map(images: ImageArray, vectors: Tensor, labels: np.ndarray) -> str:
    """Write images at their places in the plane as HTML, framed in the colour of their class.

    Parameters
    ----------
    images
        (n, H, W, C) uint8, some dozens to a few hundred.
    vectors
        (n, d) embeddings.
    labels
        (n,) classes; colours repeat after six, with dashed frames.
    """
    places = main_directions(vectors)  # (n, 2)
    low, high = places.amin(dim=0), places.amax(dim=0)
    shares = (places - low) / (high - low).clamp(min=1e-12)
    percent = (_MARGIN + (100 - 2 * _MARGIN) * shares).tolist()
    order = {label: number for number, label in enumerate(dict.fromkeys(labels.tolist()))}
    marks = [
        f'<img src="{png_address(images[index])}" alt="" style="left:{x:.2f}%;top:{y:.2f}%;'
        f'{_frame(order[int(labels[index])])}">'
        for index, (x, y) in enumerate(percent)
    ]
    return f'<div class="map" style="height:{_HEIGHT}px">{"".join(marks)}</div>'


def _frame(number: int) -> str:
    style = "dashed" if number // len(COLOURS) % 2 else "solid"
    return f"border-color:{COLOURS[number % len(COLOURS)]};border-style:{style}"


def main_directions(vectors: Tensor) -> Tensor:
    """Project vectors (n, d) on their first two principal components: (n, 2)."""
    centred = vectors.double() - vectors.double().mean(dim=0)
    _, _, directions = torch.linalg.svd(centred, full_matrices=False)
    places = centred @ directions[:2].T
    if places.shape[1] < 2:  # a single dimension, or a single image
        places = torch.nn.functional.pad(places, (0, 2 - places.shape[1]))
    # The sign of a component is arbitrary; this choice makes the same map everywhere.
    largest = places.abs().argmax(dim=0)
    signs = places[largest, torch.arange(2)].sign()
    upright: Tensor = places * torch.where(signs == 0, 1.0, signs)
    return upright
