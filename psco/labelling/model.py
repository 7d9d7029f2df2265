"""The model of a session: a run folder, a built-in encoder or a `.psco` classifier."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from psco.classifier.calibration import Calibration, open_encoder
from psco.classifier.fitting import AUTO
from psco.classifier.model import Supports, build_model
from psco.classifier.storage import Saved, read_classifier, write_classifier
from psco.errors import InputError, quoted
from psco.evaluation.embed import Encoder
from psco.labelling.labels import check_class


class SessionModel(NamedTuple):
    """What a session needs of its model.

    Parameters
    ----------
    encoder, calibration
        The network, and its calibration if it has one.
    supports
        Those of the classifier, with text as labels; None for an encoder.
    names
        Their names; empty for an encoder.
    """

    encoder: Encoder
    calibration: Calibration | None
    supports: Supports | None = None
    names: Sequence[str] = ()


def open_model(model: str | os.PathLike[str] | Encoder) -> SessionModel:
    """Open a run folder, a built-in encoder, an `Encoder` or a `.psco` classifier.

    The supports of a classifier count as labelled pictures. Its rule and its adapted heads are not
    used: a session classifies by prototypes, which follow a new label at once.

    Raises
    ------
    InputError
        If it is none of these, or a classifier of features without an encoder.
    """
    if isinstance(model, Encoder) or not Path(model).is_file():
        encoder, calibration = open_encoder(model)
        assert encoder is not None
        return SessionModel(encoder, calibration)
    saved = read_classifier(Path(model))
    if saved.encoder is None:
        raise InputError(f"{quoted(model)} was fitted on features; fit one with an encoder")
    supports = saved.model.supports
    labels = np.array([check_class(str(label)) for label in supports.labels.tolist()])
    texts = Supports(supports.embeddings, labels, supports.thumbnails)
    return SessionModel(saved.encoder, saved.calibration, texts, saved.names)


def save_model(
    path: Path,
    model: SessionModel,
    supports: Supports,
    names: list[str],
    temperature: float,
    threshold: float | None,
) -> None:
    """Write a `.psco` classifier of prototypes with the given temperature and threshold."""
    fitted = build_model(supports, "prototype", {}, model.encoder.heads)
    fitted.temperature, fitted.threshold = temperature, threshold
    fitted.rejects_by_similarity = threshold is not None
    parameters = {
        "rule": "prototype",
        "adapt_steps": 0,
        "temperature": AUTO,
        "reject_below": None if threshold is None else AUTO,
        "random_state": 0,
        "rule_options": None,
    }
    write_classifier(path, Saved(parameters, model.encoder, model.calibration, fitted, names))
