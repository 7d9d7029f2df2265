"""Few-shot classifiers from unlabelled images: pseudo-supervised contrastive learning (PsCo).

Names are loaded when they are first used, so that ``import psco`` and ``psco --help`` stay quick.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from psco.version import __version__

if TYPE_CHECKING:
    from psco.classifier import (
        FewShotClassifier,
        expected_calibration_error,
        open_set_quality,
    )
    from psco.classifier.pretraining import pretrain
    from psco.data import ImageSet, load_dataset
    from psco.errors import InputError, PscoError
    from psco.evaluation.compare import Comparison, compare
    from psco.evaluation.embed import Encoder, load
    from psco.evaluation.evaluate import evaluate
    from psco.evaluation.result import Report
    from psco.evaluation.rules import RULES
    from psco.labelling import Labelling
    from psco.methods import METHODS, Batch, Episode, Method
    from psco.methods.byol import byol_loss
    from psco.methods.moco import moco_loss
    from psco.methods.momentum import EMA, MomentumQueue, MomentumTwin
    from psco.methods.psco import PsCo
    from psco.networks import BACKBONES, Networks, conv4, conv5, predictor, projector
    from psco.ops.contrast import contrastive_loss
    from psco.ops.prototypes import prototypes
    from psco.ops.sinkhorn import sinkhorn
    from psco.ops.top_k import select_shots, shot_overlap
    from psco.recipes.recipe import Recipe, load_recipe
    from psco.report.viewsheet import ViewSheet, view_sheet
    from psco.training.run import Run
    from psco.views import TwoViews, View

_HOMES = {
    "psco.classifier": ("FewShotClassifier", "expected_calibration_error", "open_set_quality"),
    "psco.evaluation.compare": ("Comparison", "compare"),
    "psco.data": ("ImageSet", "load_dataset"),
    "psco.evaluation.embed": ("Encoder", "load"),
    "psco.errors": ("InputError", "PscoError"),
    "psco.evaluation.evaluate": ("evaluate",),
    "psco.labelling": ("Labelling",),
    "psco.methods": ("METHODS", "Batch", "Episode", "Method"),
    "psco.methods.byol": ("byol_loss",),
    "psco.methods.moco": ("moco_loss",),
    "psco.methods.momentum": ("EMA", "MomentumQueue", "MomentumTwin"),
    "psco.methods.psco": ("PsCo",),
    "psco.networks": ("BACKBONES", "Networks", "conv4", "conv5", "predictor", "projector"),
    "psco.ops.contrast": ("contrastive_loss",),
    "psco.ops.prototypes": ("prototypes",),
    "psco.ops.sinkhorn": ("sinkhorn",),
    "psco.ops.top_k": ("select_shots", "shot_overlap"),
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
    "EMA",
    "METHODS",
    "RULES",
    "Batch",
    "Comparison",
    "Encoder",
    "Episode",
    "FewShotClassifier",
    "ImageSet",
    "InputError",
    "Labelling",
    "Method",
    "MomentumQueue",
    "MomentumTwin",
    "Networks",
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
