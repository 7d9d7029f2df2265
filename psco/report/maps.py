"""A map of embeddings: images placed by the two principal components of their embeddings."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

import numpy as np
import torch
from torch import Tensor

from psco.data.imageset import ImageArray
from psco.report.gallery import picture_address
from psco.report.plots import COLOURS

_HEIGHT = 560  # pixels
_MARGIN = 4  # percent of the map that stays free at its edges


def embedding_map(
    images: ImageArray, vectors: Tensor, labels: np.ndarray, names: Sequence[str]
) -> str:
    """Return images at their places in the plane as HTML, framed by class, with a legend.

    Parameters
    ----------
    images
        (n, H, W, C) uint8, from dozens to a few hundred.
    vectors
        (n, d) embeddings.
    labels
        (n,) classes; after six, colours repeat with dashed frames.
    names
        Names of all classes.
    """
    places = principal_components(vectors)  # (n, 2)
    low, high = places.amin(dim=0), places.amax(dim=0)
    fractions = (places - low) / (high - low).clamp(min=1e-12)
    percent = (_MARGIN + (100 - 2 * _MARGIN) * fractions).tolist()
    order = {label: number for number, label in enumerate(dict.fromkeys(labels.tolist()))}
    marks = [
        f'<img src="{picture_address(images[index])}" alt="{escape(names[labels[index]])}" '
        f'style="left:{x:.2f}%;top:{y:.2f}%;{_frame(order[int(labels[index])])}">'
        for index, (x, y) in enumerate(percent)
    ]
    legend = "".join(
        f'<li><i style="{_frame(number)}"></i>{escape(names[label])}</li>'
        for label, number in order.items()
    )
    drawn = f'<div class="map" style="height:{_HEIGHT}px">{"".join(marks)}</div>'
    return f'{drawn}<ul class="legend">{legend}</ul>'


def _frame(number: int) -> str:
    style = "dashed" if number // len(COLOURS) % 2 else "solid"
    return f"border-color:var(--c{number % len(COLOURS)});border-style:{style}"


def principal_components(vectors: Tensor) -> Tensor:
    """Project vectors (n, d) on their first two principal components: (n, 2)."""
    centred = vectors.double() - vectors.double().mean(dim=0)
    _, _, directions = torch.linalg.svd(centred, full_matrices=False)
    places = centred @ directions[:2].T
    if places.shape[1] < 2:  # a single dimension, or a single image
        places = torch.nn.functional.pad(places, (0, 2 - places.shape[1]))
    # The sign of a component is arbitrary; fix it so that the map is the same on every machine.
    largest = places.abs().argmax(dim=0)
    signs = places[largest, torch.arange(2)].sign()
    oriented: Tensor = places * torch.where(signs == 0, 1.0, signs)
    return oriented
