"""The quality of a network during training, measured without labels.

Two views of a picture should find each other among the views of other pictures. The sample and its
views are the same at each measurement; training draws other views of these pictures. Measuring
changes neither the random state nor the network, so a run ends with the same bits without it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from psco.data import ImageSet
from psco.files.checksums import read_json, write_json
from psco.files.disk import DiskGuard
from psco.methods import Method
from psco.ops.quality import (
    alignment,
    effective_rank,
    retrieval_accuracy,
    separation,
    uniformity,
)
from psco.training.optim import Schedule
from psco.views import TwoViews, step_generator, to_batch

QUALITY = "quality.json"
SAMPLE = 1000  # pictures
MEASURED_AT = (0.25, 0.5, 0.75, 1.0)  # fractions of a run, after the measurement before its start
# Of the separation over a run. In results/gauge, all runs that had not gained accuracy over the
# untrained network had less, and no run of 300 steps had.
MIN_GAIN = 0.02
COLUMNS = ("retrieval", "separation", "alignment", "uniformity", "effective_rank")
_FORMAT = 1
_BATCH = 250
_FIRST_STEP = 2**31  # of the random numbers: no run has that many steps
_ADVICE = "delete it; the next measurement writes it again"

Quality = dict[str, float]


class QualityGauge:
    """Measures networks on a fixed sample of pictures and two fixed views of each.

    Parameters
    ----------
    images
        The data set; up to 1,000 pictures of it are used.
    views
        The pair of views to draw.
    seed
        Of the sample and of the views.
    """

    def __init__(self, images: ImageSet, views: TwoViews, seed: int) -> None:
        random = np.random.Generator(np.random.Philox(key=[seed, _FIRST_STEP]))
        chosen = np.sort(random.permutation(len(images))[:SAMPLE])
        self._pixels = images.images[chosen]  # (n, H, W, C) uint8
        self._views, self._seed = views, seed

    def __len__(self) -> int:
        return len(self._pixels)

    def __call__(self, method: Method) -> Quality:
        """Return the quality of a network, by the names of the columns of ``metrics.csv``.

        ``retrieval`` is in [0, 1], larger being better; see ``psco.ops.quality`` for the others.
        All are of the backbone's features, centred on their mean: the heads follow the loss, and
        an untrained network has features that are good for something, but no heads.
        """
        # Features that are not finite count as zeros: the loop reports them, not the gauge.
        a, b = (x.nan_to_num() for x in self.features(method))  # (n, width) each
        centre = b.mean(dim=0)
        a, b = F.normalize(a - centre, dim=1), F.normalize(b - centre, dim=1)
        return {
            "retrieval": retrieval_accuracy(a, b),
            "separation": separation(a, b),
            "alignment": alignment(a, b),
            "uniformity": uniformity(b),
            "effective_rank": effective_rank(b),
        }

    @torch.no_grad()
    def features(self, method: Method) -> tuple[Tensor, Tensor]:
        """Return the features (n, width) of both views, on the CPU."""
        like = next(method.parameters())
        parts: list[list[Tensor]] = [[], []]
        with torch.random.fork_rng(), _evaluating(method):
            for begin in range(0, len(self._pixels), _BATCH):
                batch = to_batch(self._pixels[begin : begin + _BATCH]).to(like.device)
                generator = step_generator(self._seed, _FIRST_STEP + begin)
                for part, view in zip(parts, self._views(batch, generator), strict=True):
                    one = view[: len(batch)].to(like)  # of several online views, the first
                    part.append(method.backbone(one).float().cpu())
        a, b = (torch.cat(part) for part in parts)
        return a, b


class QualityWatch:
    """Measures a run at its start, a few times on the way and at its end.

    The measurements are in ``quality.json`` of the run folder. A resumed run continues the file.

    Parameters
    ----------
    gauge
        Measures a network.
    folder, disk
        The run folder, and what to do when its disk is full.
    schedule
        Of the run; it says which fraction of the run is done.
    step
        Steps already taken. Later measurements are dropped, since a resumed run repeats them.
    """

    def __init__(
        self, gauge: QualityGauge, folder: Path, disk: DiskGuard, schedule: Schedule, step: int
    ) -> None:
        self._gauge, self._file, self._disk = gauge, folder / QUALITY, disk
        self._schedule = schedule
        self._rows = [row for row in read_quality(folder) if row["step"] <= step]

    def __call__(self, step: int, seconds: float, method: Method) -> Quality:
        """Return the latest measurement, which is a new one if it is due."""
        if self._is_due(step, seconds):
            self._rows = [row for row in self._rows if row["step"] < step]
            self._rows.append({"step": step, "seconds": seconds, **self._gauge(method)})
            content = {"format": _FORMAT, "measurements": self._rows}
            self._disk.write(QUALITY, lambda: write_json(self._file, content))
        return {name: self._rows[-1][name] for name in COLUMNS}

    def _is_due(self, step: int, seconds: float) -> bool:
        if not self._rows:
            return True
        last = self._rows[-1]
        return self._passed(step, seconds) > self._passed(int(last["step"]), last["seconds"])

    def _passed(self, step: int, seconds: float) -> int:
        done = self._schedule.done(step, seconds)
        return sum(done >= fraction for fraction in MEASURED_AT)


def read_quality(folder: Path) -> list[dict[str, float]]:
    """Return the measurements of a run with their steps; none if nothing was measured.

    Raises
    ------
    PscoError
        If ``quality.json`` is damaged.
    """
    path = folder / QUALITY
    if not path.is_file():
        return []
    content: dict[str, Any] = read_json(path, _ADVICE)[0]
    rows: list[dict[str, float]] = content["measurements"]
    return rows


def quality_summary(rows: Sequence[Mapping[str, float]]) -> str | None:
    """Return one line about what a run has learnt; None without two measurements."""
    if len(rows) < 2:
        return None
    first, last = rows[0], rows[-1]
    return (
        f"two views of a picture find each other in {last['retrieval']:.1%} of cases "
        f"({first['retrieval']:.1%} at step {first['step']:.0f}), separation "
        f"{last['separation']:.2f} ({first['separation']:.2f})"
    )


def quality_warning(rows: Sequence[Mapping[str, float]]) -> str | None:
    """Return a warning if training has hardly improved the network, else None."""
    if len(rows) < 2 or rows[-1]["separation"] - rows[0]["separation"] >= MIN_GAIN:
        return None
    first, last = rows[0], rows[-1]
    return (
        f"the features have hardly improved since step {first['step']:.0f}: their separation is "
        f"{last['separation']:.2f} at step {last['step']:.0f}, after {first['separation']:.2f}; "
        f"few-shot accuracy may be no better than that of an untrained network; train longer "
        f"(--resume with a larger length), or check the views with psco views"
    )


@contextmanager
def _evaluating(module: nn.Module) -> Iterator[None]:
    """Put all modules into evaluation mode for the block; then restore the mode of each."""
    modes = [(part, part.training) for part in module.modules()]
    module.eval()
    try:
        yield
    finally:
        for part, was_training in modes:
            part.training = was_training
