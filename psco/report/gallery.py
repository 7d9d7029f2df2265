"""Pictures inside pages, and few-shot tasks drawn with them."""

from __future__ import annotations

import base64
import io

import numpy as np
from PIL import Image

from psco.data.imageset import ImageArray

_PHOTO_SIDE = 64  # pixels; larger colour pictures are stored as JPEG


def task_rows(
    images: ImageArray,
    support: np.ndarray,
    query: np.ndarray,
    predicted: np.ndarray,
    confidence: np.ndarray | None = None,
    rejected: np.ndarray | None = None,
) -> str:
    """Return one task as rows of an HTML table, one row per class.

    Parameters
    ----------
    images
        (n, H, W, C) uint8.
    support
        (N, K) indices of the supports.
    query
        (N, Q) indices of the queries to show.
    predicted
        (N, Q) predicted class of each, 0..N−1.
    confidence
        (N, Q) probability of each prediction, in [0, 1], shown below the query.
    rejected
        (N, Q) whether a query would be labelled unknown, shown by a dashed frame.
    """
    rows = []
    for true, (shots, queries, answers) in enumerate(zip(support, query, predicted, strict=True)):
        shown = "".join(picture(images[i]) for i in shots)
        cells = []
        for place, (index, answer) in enumerate(zip(queries, answers, strict=True)):
            inside = picture(images[index])
            if answer != true:
                inside += f'<span class="as">{picture(images[support[answer][0]])}</span>'
            kind = "right" if answer == true else "wrong"
            if rejected is not None and rejected[true, place]:
                kind += " unknown"
            cell = f'<span class="{kind}">{inside}</span>'
            if confidence is not None:
                cell += f"<small>{confidence[true, place]:.0%}</small>"
            cells.append(f'<span class="query">{cell}</span>')
        rows.append(f'<tr><td class="support">{shown}</td><td>{"".join(cells)}</td></tr>')
    return "\n".join(rows)


def picture(pixels: np.ndarray) -> str:
    """Return an inline picture of an image (H, W, C) uint8."""
    return f'<img src="{picture_address(pixels)}" alt="">'


def picture_address(pixels: np.ndarray) -> str:
    """Return a ``data:`` address that holds an image (H, W, C) uint8.

    Large colour images are stored as JPEG, which takes a quarter of the space; all others as PNG.
    """
    is_photo = pixels.shape[-1] == 3 and pixels.shape[0] > _PHOTO_SIDE
    file = io.BytesIO()
    image = Image.fromarray(pixels[..., 0] if pixels.shape[-1] == 1 else pixels)
    image.save(file, "JPEG" if is_photo else "PNG", **({"quality": 85} if is_photo else {}))
    kind = "jpeg" if is_photo else "png"
    return f"data:image/{kind};base64,{base64.b64encode(file.getvalue()).decode()}"
