"""Pictures of few-shot tasks: the supports, and the queries marked right or wrong."""

from __future__ import annotations

import base64
import io

import numpy as np
from PIL import Image

from psco.data.imageset import ImageArray


def task_rows(
    images: ImageArray, support: np.ndarray, query: np.ndarray, predicted: np.ndarray
) -> str:
    """Write one task as rows of an HTML table, one row for each class.

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
    """
    rows = []
    for true, (shots, queries, answers) in enumerate(zip(support, query, predicted, strict=True)):
        shown = "".join(_picture(images[i]) for i in shots)
        cells = []
        for index, answer in zip(queries, answers, strict=True):
            if answer == true:
                cells.append(f'<span class="right">{_picture(images[index])}</span>')
            else:
                taken_for = _picture(images[support[answer][0]])
                cells.append(
                    f'<span class="wrong">{_picture(images[index])}<span class="as">{taken_for}'
                    f"</span></span>"
                )
        rows.append(f'<tr><td class="support">{shown}</td><td>{"".join(cells)}</td></tr>')
    return "\n".join(rows)


def _picture(pixels: np.ndarray) -> str:
    file = io.BytesIO()
    Image.fromarray(pixels[..., 0] if pixels.shape[-1] == 1 else pixels).save(file, "PNG")
    code = base64.b64encode(file.getvalue()).decode()
    return f'<img src="data:image/png;base64,{code}" alt="">'
