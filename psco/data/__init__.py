"""Data sets by name or by path, all loaded as an `ImageSet`."""

from __future__ import annotations

from psco.data.imageset import ImageSet, with_channels
from psco.data.load import base_name, dataset_names, has_splits, load_dataset

__all__ = [
    "ImageSet",
    "base_name",
    "dataset_names",
    "has_splits",
    "load_dataset",
    "with_channels",
]
