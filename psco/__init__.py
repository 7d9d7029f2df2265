"""Few-shot classifiers from unlabelled images: pseudo-supervised contrastive learning (PsCo).

Names are loaded when they are first used, so that ``import psco`` and ``psco --help`` stay quick.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from psco.version import __version__

if TYPE_CHECKING:
    from psco.classifier import FewShotClassifier, open_set_quality
    from psco.classifier.confidence import expected_calibration_error
    from psco.classifier.pretraining import pretrain
    from psco.data import ImageSet, load_dataset
    from psco.errors import InputError, PscoError
    from psco.evaluation.compare import Comparison, compare
    from psco.evaluation.embed import Encoder, load
    from psco.evaluation.evaluate import evaluate
    from psco.evaluation.result import Report
    from psco.evaluation.rules import RULES
    from psco.methods import METHODS, Episode, Method
    from psco.methods.momentum import MomentumQueue, MomentumTwin
    from psco.methods.psco import (
        PsCo,
        byol_loss,
        contrastive_loss,
        moco_loss,
        prototypes,
        select_shots,
        shot_overlap,
        sinkhorn,
    )
    from psco.networks import BACKBONES, conv4, conv5, predictor, projector
    from psco.recipes.recipe import Recipe, load_recipe
    from psco.report.viewsheet import ViewSheet, view_sheet
    from psco.training.run import Run
    from psco.views import TwoViews, View

_HOMES = {
    "psco.classifier": ("FewShotClassifier", "open_set_quality"),
    "psco.evaluation.compare": ("Comparison", "compare"),
    "psco.classifier.confidence": ("expected_calibration_error",),
    "psco.data": ("ImageSet", "load_dataset"),
    "psco.evaluation.embed": ("Encoder", "load"),
    "psco.errors": ("InputError", "PscoError"),
    "psco.evaluation.evaluate": ("evaluate",),
    "psco.methods": ("METHODS", "Episode", "Method"),
    "psco.methods.psco": (
        "PsCo",
        "byol_loss",
        "contrastive_loss",
        "moco_loss",
        "prototypes",
        "select_shots",
        "shot_overlap",
        "sinkhorn",
    ),
    "psco.methods.momentum": ("MomentumQueue", "MomentumTwin"),
    "psco.networks": ("BACKBONES", "conv4", "conv5", "predictor", "projector"),
    "psco.recipes.recipe": ("Recipe", "load_recipe"),
    "psco.report.viewsheet": ("ViewSheet", "view_sheet"),
    "psco.evaluation.result": ("Report",),
    "psco.evaluation.rules": ("RULES",),
    "psco.classifier.pretraining": ("pretrain",),
    "psco.training.run": ("Run",),
    "psco.views": ("TwoViews", "View"),
}
_HOME_OF = {name: home for home, names in _HOMES.items() for name in names}

__all__ = [
    "BACKBONES",
    "METHODS",
    "RULES",
    "Comparison",
    "Encoder",
    "Episode",
    "FewShotClassifier",
    "ImageSet",
    "InputError",
    "Method",
    "MomentumQueue",
    "MomentumTwin",
    "PsCo",
    "PscoError",
    "Recipe",
    "Report",
    "Run",
    "TwoViews",
    "View",
    "ViewSheet",
    "__version__",
    "byol_loss",
    "compare",
    "contrastive_loss",
    "conv4",
    "conv5",
    "evaluate",
    "expected_calibration_error",
    "load",
    "load_dataset",
    "load_recipe",
    "moco_loss",
    "open_set_quality",
    "predictor",
    "pretrain",
    "projector",
    "prototypes",
    "select_shots",
    "shot_overlap",
    "sinkhorn",
    "view_sheet",
]


def __getattr__(name: str) -> Any:
    if name not in _HOME_OF:
        raise AttributeError(f"module 'psco' has no attribute {name!r}")
    return getattr(importlib.import_module(_HOME_OF[name]), name)


def __dir__() -> list[str]:
    return __all__
