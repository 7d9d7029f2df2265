"""The operations that take most of a step and that torch does not have, in C.

A kernel does in one pass over memory what takes torch several. Each has a twin in plain torch for
machines without a compiler, other number formats, other devices and other shapes; tests hold the
two to the same numbers. A ``supports_`` function tells whether a kernel takes its inputs. A kernel
that is called with anything else raises `psco.errors.InputError`. ``psco doctor`` shows whether the
kernels are there.
"""

from psco.ops.native.assignment import Plan, plan_of, supports_plan
from psco.ops.native.block import Map, MapGradient, conv_pool, conv_pool_back, supports_conv_pool
from psco.ops.native.build import absence
from psco.ops.native.contrast import contrast_keys, supports_contrast
from psco.ops.native.crop import check_boxes, crops, supports_crops
from psco.ops.native.first_block import (
    pooled_windows,
    supports_windows,
    window_moments,
    won_windows,
)
from psco.ops.native.heads import Hidden, mlp, mlp_back, supports_mlp

__all__ = [
    "Hidden",
    "Map",
    "MapGradient",
    "Plan",
    "absence",
    "check_boxes",
    "contrast_keys",
    "conv_pool",
    "conv_pool_back",
    "crops",
    "mlp",
    "mlp_back",
    "plan_of",
    "pooled_windows",
    "supports_contrast",
    "supports_conv_pool",
    "supports_crops",
    "supports_mlp",
    "supports_plan",
    "supports_windows",
    "window_moments",
    "won_windows",
]
