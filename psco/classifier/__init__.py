"""Few-shot classifiers: fit on a few labelled images, then classify others."""

from __future__ import annotations

from psco.classifier.estimator import FewShotClassifier
from psco.classifier.metrics import OpenSetQuality, expected_calibration_error, open_set_quality

__all__ = [
    "FewShotClassifier",
    "OpenSetQuality",
    "expected_calibration_error",
    "open_set_quality",
]
