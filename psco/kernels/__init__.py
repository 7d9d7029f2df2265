"""What torch has no operation for and a step spends its time with, written in C.

A kernel does in one pass over memory what takes torch several. Each has a twin in plain torch,
which is used where there is no compiler, for other number formats and on other devices, and tests
hold the two to the same numbers. ``psco doctor`` tells whether the kernels are there.
"""

from psco.kernels.assignment import Plan, plan_of, suits_plan
from psco.kernels.block import Map, MapGradient, conv_pool, conv_pool_back, suits_conv_pool
from psco.kernels.build import absence
from psco.kernels.contrast import contrast_keys, suits_contrast
from psco.kernels.crop import crops, suits_crops
from psco.kernels.first_block import pooled_windows, suits_windows, window_moments, won_windows
from psco.kernels.heads import Hidden, mlp, mlp_back, suits_mlp

__all__ = [
    "Hidden",
    "Map",
    "MapGradient",
    "Plan",
    "absence",
    "contrast_keys",
    "conv_pool",
    "conv_pool_back",
    "crops",
    "mlp",
    "mlp_back",
    "plan_of",
    "pooled_windows",
    "suits_contrast",
    "suits_conv_pool",
    "suits_crops",
    "suits_mlp",
    "suits_plan",
    "suits_windows",
    "window_moments",
    "won_windows",
]
