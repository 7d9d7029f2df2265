"""The state of a session as bytes for the page: 6 bytes a picture, whatever there is to say.

A frame is the length of a JSON head (4 bytes, little-endian), the head, and four arrays over the n
pictures, one after the other:

========== ===== ===================================================================
labels     int16 number of the class, or `NONE`, `CODES`
predicted  int16 number of the class, or `NONE`
chance     uint8 calibrated probability of the prediction, per cent
flags      uint8 sum of `UNKNOWN`, `CONFIRMED` and `BROKEN`
========== ===== ===================================================================

The head is padded with spaces, so that the arrays begin at a multiple of 4.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from typing import Any

import numpy as np

from psco.labelling import NONE_OF_THESE, NOT_USABLE
from psco.labelling.labels import Label
from psco.labelling.live import Predictions

NONE = -1
CODES = {NONE_OF_THESE: -2, NOT_USABLE: -3}
UNKNOWN, CONFIRMED, BROKEN = 1, 2, 4
_FEWEST = 2  # classes; with one, every picture would be predicted to be of it


def encode_frame(
    head: Mapping[str, Any],
    given: Mapping[int, Label],
    predictions: Predictions,
    broken: Collection[int],
) -> bytes:
    """Return the frame of a state.

    Parameters
    ----------
    head
        Values of JSON, with the ``classes``; the number of ``pictures`` is added.
    given
        The labels by number of the picture.
    predictions
        For the same labels.
    broken
        The pictures that cannot be decoded.
    """
    pictures = len(predictions.number)
    labels = _label_codes(given, head["classes"], pictures)
    predicted = np.full(pictures, NONE, dtype="<i2")
    flags = np.zeros(pictures, dtype=np.uint8)
    if len(head["classes"]) >= _FEWEST:
        predicted[:] = predictions.number
        flags[predictions.unknown] |= UNKNOWN
    flags[[number for number, label in given.items() if label.confirmed]] |= CONFIRMED
    flags[list(broken)] |= BROKEN
    chance = np.rint(100 * np.nan_to_num(predictions.probability)).clip(0, 100).astype(np.uint8)
    text = json.dumps({**head, "pictures": pictures}).encode()
    text += b" " * (-len(text) % 4)
    arrays = (labels, predicted, chance, flags)
    return b"".join([len(text).to_bytes(4, "little"), text, *(array.tobytes() for array in arrays)])


def _label_codes(given: Mapping[int, Label], classes: list[str], pictures: int) -> np.ndarray:
    """Return the label (pictures,) int16 of each picture as a number."""
    codes = {**{name: number for number, name in enumerate(classes)}, **CODES}
    labels = np.full(pictures, NONE, dtype="<i2")
    for number, label in given.items():
        labels[number] = codes[label.name]
    return labels
