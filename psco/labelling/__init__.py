"""Labelling a folder of pictures: what to label next, and predictions that follow every label."""

from __future__ import annotations

from psco.labelling.files import merge_labels, read_labels
from psco.labelling.labels import NONE_OF_THESE, NOT_USABLE, Label
from psco.labelling.live import Predictions
from psco.labelling.session import Labelling
from psco.labelling.suggestions import Suggestion

__all__ = [
    "NONE_OF_THESE",
    "NOT_USABLE",
    "Label",
    "Labelling",
    "Predictions",
    "Suggestion",
    "merge_labels",
    "read_labels",
]
