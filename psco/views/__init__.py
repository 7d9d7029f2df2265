"""Random views of images, computed for whole batches."""

from __future__ import annotations

from psco.ops.resample import Filter, resize, resize_weights, separable
from psco.registry import Registry
from psco.views.affine import Affine, Elastic
from psco.views.blur import Blur
from psco.views.check import blank_fraction, check_views
from psco.views.colour import Grey, Jitter
from psco.views.crop import Crop
from psco.views.dropout import Dropout
from psco.views.erase import Erase
from psco.views.orientation import Flip, Turn
from psco.views.pair import CallableView, TwoViews, step_generator
from psco.views.part import Part, SameOnBatchGenerator
from psco.views.shift import Shift
from psco.views.stroke import Stroke
from psco.views.view import View, plain_view, to_batch
from psco.views.warp import Warp

VIEW_PARTS: Registry[type[Part]] = Registry("view part")
VIEW_PARTS.register("crop")(Crop)
VIEW_PARTS.register("flip")(Flip)
VIEW_PARTS.register("turn")(Turn)
VIEW_PARTS.register("shift")(Shift)
VIEW_PARTS.register("affine")(Affine)
VIEW_PARTS.register("elastic")(Elastic)
VIEW_PARTS.register("stroke")(Stroke)
VIEW_PARTS.register("erase")(Erase)
VIEW_PARTS.register("dropout")(Dropout)
VIEW_PARTS.register("jitter")(Jitter)
VIEW_PARTS.register("grey")(Grey)
VIEW_PARTS.register("blur")(Blur)

__all__ = [
    "VIEW_PARTS",
    "Affine",
    "Blur",
    "CallableView",
    "Crop",
    "Dropout",
    "Elastic",
    "Erase",
    "Filter",
    "Flip",
    "Grey",
    "Jitter",
    "Part",
    "SameOnBatchGenerator",
    "Shift",
    "Stroke",
    "Turn",
    "TwoViews",
    "View",
    "Warp",
    "blank_fraction",
    "check_views",
    "plain_view",
    "resize",
    "resize_weights",
    "separable",
    "step_generator",
    "to_batch",
]
