"""A few labelled pictures in, labels for others out: the classifier people use."""

from __future__ import annotations

from psco.classifier.estimator import FewShotClassifier
from psco.classifier.metrics import OpenSetQuality, open_set_quality

__all__ = ["FewShotClassifier", "OpenSetQuality", "open_set_quality"]
