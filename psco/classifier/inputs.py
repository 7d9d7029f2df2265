"""What `FewShotClassifier` is given: an encoder, pictures or features, and labels, all checked."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import assert_all_finite, column_or_1d, validate_data

from psco.classifier.calibration import Calibration, read_calibration
from psco.classifier.embedding import choose_device, embedding, thumbnails
from psco.classifier.pictures import image_batches
from psco.errors import InputError
from psco.evaluation.embed import Encoder, load
from psco.evaluation.rules import Embeddings, join_embeddings


def open_encoder(encoder: object) -> tuple[Encoder | None, Calibration | None]:
    """Give the network that a parameter ``encoder`` means, and what is known about its scores.

    Raises
    ------
    InputError
        If it is neither a run folder, an `Encoder` nor None.
    """
    if encoder is None:
        return None, None
    if isinstance(encoder, (str, os.PathLike)):
        encoder = load(Path(encoder))
    if isinstance(encoder, Encoder):
        return encoder, None if encoder.folder is None else read_calibration(encoder.folder)
    raise InputError(f"encoder must be a run folder, an Encoder or None, not {encoder!r}")


def take_features(
    estimator: Any, X: Any, y: Any = None, *, fitting: bool, first: bool = False
) -> tuple[np.ndarray, np.ndarray]:
    """Check bare features as scikit-learn does.

    Parameters
    ----------
    estimator
        Remembers the number and names of the features.
    X, y
        Table (n, width) of finite numbers and, in fitting, labels (n,).
    fitting, first
        Whether there are labels; whether to forget what is remembered.

    Returns
    -------
    np.ndarray, np.ndarray
        Features (n, width) float64, and labels (n,), empty unless fitting.

    Raises
    ------
    InputError
        If something is wrong, in one line.
    """
    try:
        if fitting:
            features, labels = validate_data(
                estimator, X, y, reset=first, dtype=np.float64, ensure_all_finite=False
            )
            check_classification_targets(labels)
        else:
            features = validate_data(
                estimator, X, reset=False, dtype=np.float64, ensure_all_finite=False
            )
            labels = np.empty(0)
    except ValueError as error:
        raise InputError(" ".join(str(error).split())) from None
    bad = np.flatnonzero(~np.isfinite(features).all(axis=1))
    if len(bad):
        raise InputError(
            f"{len(bad)} of {len(features)} rows of X contain NaN or infinity, the first is row "
            f"{bad[0]}"
        )
    return features, labels


def take_labels(y: Any, number: int) -> np.ndarray:
    """Check the labels (n,) of so many pictures.

    Raises
    ------
    InputError
        If there are more or fewer, or they are no labels of classes.
    """
    if y is None:
        raise InputError("a classifier requires y to be passed, but the target y is None")
    try:
        labels: np.ndarray = column_or_1d(y, warn=True)
        check_classification_targets(labels)
        assert_all_finite(labels, input_name="y")
    except ValueError as error:
        raise InputError(" ".join(str(error).split())) from None
    if len(labels) != number:
        raise InputError(f"every picture needs a label: {number} pictures, {len(labels)} labels")
    return labels


def check_classes(labels: np.ndarray, source: str) -> None:
    """Raise InputError unless labels (n,) are of two classes at least; ``source`` has them."""
    classes = np.unique(labels)
    if len(classes) < 2:
        raise InputError(
            f"{source} has 1 class, {classes[0].item()!r}; a classifier needs at least 2"
        )


def embed_pictures(
    encoder: Encoder, X: Any, device: str, *, small_copies: bool = False
) -> tuple[Embeddings, np.ndarray | None]:
    """Embed pictures of any kind, some at a time.

    Returns
    -------
    Embeddings, np.ndarray or None
        Embeddings (n,), and if asked for small copies (n, 32, 32, C) uint8.
    """
    points, small = [], []
    with embedding(encoder, choose_device(device)) as embed:
        for images in image_batches(X, encoder.recipe.image):
            points.append(embed(images))
            if small_copies:
                small.append(thumbnails(images))
    return join_embeddings(points), np.concatenate(small) if small else None
