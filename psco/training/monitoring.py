"""What watches a run: its training curves and the measurements without labels."""

from __future__ import annotations

from collections.abc import Sequence

from psco.data import ImageSet
from psco.files.atomic import remove_leftovers
from psco.files.disk import DiskGuard
from psco.training.checkpoint import METRICS
from psco.training.collapse import collapse_watch
from psco.training.frozen import CachedViews
from psco.training.logging import Logger, csv_logger, tensorboard_logger
from psco.training.loop import Loop
from psco.training.quality import QualityGauge, QualityWatch
from psco.views import TwoViews


def open_loggers(
    loop: Loop, disk: DiskGuard, more: Sequence[Logger], tensorboard: bool
) -> list[Logger]:
    """Return what each row of the training curves goes to: ``metrics.csv``, warnings, and more."""
    folder = loop.folder
    remove_leftovers(folder)
    write_row = csv_logger(folder / METRICS, loop.step)
    loggers: list[Logger] = [
        lambda row: disk.write(METRICS, lambda: write_row(row)),
        collapse_watch(),
        *more,
    ]
    if tensorboard:
        loggers.append(tensorboard_logger(folder / "tensorboard"))
    return loggers


def open_watch(
    loop: Loop, disk: DiskGuard, images: ImageSet, pair: TwoViews
) -> QualityWatch | None:
    """Return what measures the network without labels.

    None if its features do not change, or if there is no augmentation: the gauge compares two views
    of a picture, which would be equal.
    """
    if isinstance(loop.views, CachedViews) or not loop.method.has_features:
        return None
    if not loop.recipe.views.view_a and not loop.recipe.views.view_b:
        return None
    gauge = QualityGauge(images, pair, loop.recipe.train.seed)
    return QualityWatch(gauge, loop.folder, disk, loop.schedule, loop.step)
