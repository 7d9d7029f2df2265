"""Features without an encoder, and labels: checked as scikit-learn checks them."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import assert_all_finite, column_or_1d, validate_data
from torch import Tensor

from psco.errors import InputError
from psco.evaluation.rules import Embeddings

_FAR = 1e15  # standardized; nothing is closer or further beyond it, and its square is finite


@dataclass(frozen=True)
class Standardization:
    """Centres features and divides them by one common scale, so that every rule can use them.

    Parameters
    ----------
    centre
        (width,) mean of the supports, divided by the unit.
    scale
        Root mean square of the centred supports, divided by the unit; one number for all features.
    unit
        A power of two close to the largest feature. Squares of features divided by it do not
        overflow, and the division is exact.
    """

    centre: Tensor
    scale: float
    unit: float = 1.0

    @classmethod
    def of(cls, features: Tensor) -> Standardization:
        """Return the standardization of the features (S, width) of the supports."""
        largest = float(features.abs().max())
        unit = 2.0 ** math.floor(math.log2(largest)) if largest > 0 else 1.0
        scaled = features / unit
        centre = scaled.mean(dim=0)
        scale = float((scaled - centre).square().mean().sqrt())
        return cls(centre, scale or 1.0 / unit, unit)

    def __call__(self, embeddings: Embeddings) -> Embeddings:
        """Return standardized features; supports and queries are these with unit length."""
        features = (embeddings.features / self.unit - self.centre) / self.scale
        features = features.clamp(-_FAR, _FAR)
        unit = F.normalize(features, dim=-1)
        return Embeddings(features, unit, unit)


def embed_features(features: np.ndarray) -> Embeddings:
    """Return features (n, width) as embeddings (n,) that no head has transformed."""
    table = torch.tensor(features)
    return Embeddings(table, table, table)


def check_training_features(
    estimator: Any, X: Any, y: Any, *, reset: bool
) -> tuple[np.ndarray, np.ndarray]:
    """Return features (n, width) float64 and labels (n,) of the supports.

    Parameters
    ----------
    estimator
        Stores the number and the names of the features.
    X, y
        Table (n, width) of finite numbers, and labels (n,).
    reset
        Store number and names anew instead of comparing with the stored ones.

    Raises
    ------
    InputError
        With the message of scikit-learn, in one line; or if a feature is not finite.
    """
    try:
        features, labels = validate_data(
            estimator, X, y, reset=reset, dtype=np.float64, ensure_all_finite=False
        )
        check_classification_targets(labels)
    except ValueError as error:
        raise _in_one_line(error) from None
    _require_finite(features)
    return features, labels


def check_features(estimator: Any, X: Any) -> np.ndarray:
    """Return the features (n, width) float64 of queries; see `check_training_features`."""
    try:
        features: np.ndarray = validate_data(
            estimator, X, reset=False, dtype=np.float64, ensure_all_finite=False
        )
    except ValueError as error:
        raise _in_one_line(error) from None
    _require_finite(features)
    return features


def check_labels(y: Any, number: int) -> np.ndarray:
    """Return the labels (n,) of ``number`` images.

    Raises
    ------
    InputError
        If their number is another, or they are not class labels.
    """
    if y is None:
        raise InputError("a classifier requires y to be passed, but the target y is None")
    try:
        labels: np.ndarray = column_or_1d(y, warn=True)
        check_classification_targets(labels)
        assert_all_finite(labels, input_name="y")
    except ValueError as error:
        raise _in_one_line(error) from None
    if len(labels) != number:
        raise InputError(f"X and y must have the same length, got {number} and {len(labels)}")
    return labels


def check_classes(labels: np.ndarray, source: str) -> None:
    """Raise InputError unless labels (n,) name at least two classes; ``source`` holds them."""
    classes = np.unique(labels)
    if len(classes) < 2:
        raise InputError(
            f"{source} has 1 class, {classes[0].item()!r}; a classifier needs at least 2"
        )


def _in_one_line(error: ValueError) -> InputError:
    return InputError(" ".join(str(error).split()))


def _require_finite(features: np.ndarray) -> None:
    bad = np.flatnonzero(~np.isfinite(features).all(axis=1))
    if len(bad):
        raise InputError(
            f"{len(bad)} of {len(features)} rows of X contain NaN or infinity, the first is row "
            f"{bad[0]}"
        )
