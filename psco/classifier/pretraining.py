"""Pretraining as people call it: train a run, then calibrate the scores of its classifiers."""

from __future__ import annotations

from typing import Any

from psco.classifier.calibration import calibrate_finished
from psco.training import run as training


def pretrain(data: object, **options: Any) -> training.Run:
    """Train a method on unlabelled images; options as of `psco.training.run.pretrain`."""
    return training.pretrain(data, on_finish=calibrate_finished, **options)
