"""Pretraining as people call it: train a run, then calibrate the scores of its classifiers."""

from __future__ import annotations

from functools import partial

from psco.classifier.calibration import calibrate_finished
from psco.training.run import pretrain as train

pretrain = partial(train, on_finish=calibrate_finished)
