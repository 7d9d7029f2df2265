"""Random views of images, as batched operations on images in memory."""

from __future__ import annotations

from psco.registry import Registry
from psco.views.blur import Blur
from psco.views.colour import Grey, Jitter
from psco.views.crop import Crop, Flip
from psco.views.pair import CallableView, TwoViews, step_generator
from psco.views.part import Part
from psco.views.resample import Filter, resize, resize_weights, separable
from psco.views.view import View, plain_view, to_batch

VIEW_PARTS: Registry[Part] = Registry("view part")
VIEW_PARTS.register("crop", Crop)
VIEW_PARTS.register("flip", Flip)
VIEW_PARTS.register("jitter", Jitter)
VIEW_PARTS.register("grey", Grey)
VIEW_PARTS.register("blur", Blur)

__all__ = [
    "VIEW_PARTS",
    "Blur",
    "CallableView",
    "Crop",
    "Filter",
    "Flip",
    "Grey",
    "Jitter",
    "Part",
    "TwoViews",
    "View",
    "plain_view",
    "resize",
    "resize_weights",
    "separable",
    "step_generator",
    "to_batch",
]
