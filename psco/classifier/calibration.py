"""Calibration of a run from unlabelled images: temperatures and similarities to expect.

A classifier with one shot per class has no support to hold out for calibration. It uses
``calibration.json`` in the run folder instead, which is measured on pseudo-tasks.

In a pseudo-task every image is a class. The image itself is the only support, and random views of
it are the queries. The queries are views of views: the network was trained to be invariant to a
single view, and two images of one class differ by more than that.

Recipes differ in how small their crops are, and two successive crops to a fifth of the area show
less of an image than another image of its class does. So crops keep at least 0.35 of the area here.

Views measure how much two images of one thing may differ, but underestimate it for a network that
was trained on views. The similarity of different images also bounds a class, and errs on the other
side (results/classifier/README.md). The rejection threshold lies half-way between the two.
"""

from __future__ import annotations

import math
import os
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import cast

import numpy as np
import torch
from torch import Tensor

from psco.classifier.confidence import FALSE_REJECTION_RATE, default_temperature, fit_temperature
from psco.data import ImageSet
from psco.data.imageset import ImageArray
from psco.errors import InputError, PscoError, counted, quoted
from psco.evaluation.embed import Encoder, load
from psco.evaluation.rules import Embeddings
from psco.files.checksums import damaged, read_json, verify_checksum, write_json
from psco.recipes.build import build_views
from psco.training.checkpoint import CALIBRATION, CONFIG
from psco.views import Crop, Part, View, to_batch

FORMAT = 1
WAYS = (2, 5, 10, 20, 50)
_IMAGES = 1000
_VIEWS = 4  # of each image
_QUANTILES = 39
_MIN_AREA = 0.35  # fraction of an image that a crop keeps
_SAME_CLASS = 0.03  # assumed fraction of pairs of different images that look like one class
_SUPPORTS = 2000  # in all tasks with the same number of ways
_BATCH = 250
_ADVICE = "delete it, or calibrate the run again"


@dataclass(frozen=True)
class Calibration:
    """Temperature and similarity of PsCo's prototypes in one-shot tasks, by number of ways.

    Parameters
    ----------
    ways
        Numbers of classes, ascending.
    temperature
        For each of them, the temperature that turns cosines into probabilities.
    similarity
        For each of them, equally spaced quantiles of the largest cosine of genuine queries, as
        estimated without labels.
    """

    ways: tuple[int, ...]
    temperature: tuple[float, ...]
    similarity: tuple[tuple[float, ...], ...]

    def temperature_for(self, ways: int) -> float:
        """Return the temperature for any number of classes, interpolated."""
        return float(np.interp(np.log(ways), np.log(self.ways), self.temperature))

    def similarity_for(self, ways: int) -> np.ndarray:
        """Return the quantiles of the similarity for any number of classes, interpolated."""
        table = np.array(self.similarity).T  # (quantiles, ways)
        return np.array([np.interp(np.log(ways), np.log(self.ways), row) for row in table])

    def as_dict(self) -> dict[str, object]:
        """Return the content of ``calibration.json``."""
        return {
            "format": FORMAT,
            "ways": self.ways,
            "temperature": self.temperature,
            "likeness": self.similarity,
        }

    @classmethod
    def from_dict(cls, content: dict[str, object], source: str) -> Calibration:
        """Return the calibration that `as_dict` wrote; ``source`` is its name in errors."""
        try:
            if content["format"] != FORMAT:
                raise PscoError(
                    f"{source} has format {content['format']!r} and this version reads {FORMAT}; "
                    f"{_ADVICE}"
                )
            table = cls(
                tuple(int(number) for number in content["ways"]),  # type: ignore[attr-defined]
                tuple(float(number) for number in content["temperature"]),  # type: ignore[attr-defined]
                tuple(tuple(map(float, row)) for row in content["likeness"]),  # type: ignore[attr-defined]
            )
        except (KeyError, TypeError, ValueError, OverflowError):
            raise PscoError(f"{source} is damaged; {_ADVICE}") from None
        if not table._is_sound():
            raise PscoError(f"{source} has values that no calibration has; {_ADVICE}")
        return table

    def _is_sound(self) -> bool:
        """Whether all numbers are in range, with one temperature and row for each of the ways."""
        rows = {len(row) for row in self.similarity}
        return (
            len(self.ways) == len(self.temperature) == len(self.similarity) > 0
            and all(a < b for a, b in pairwise((1, *self.ways, 2**31)))
            and all(math.isfinite(value) and value > 0 for value in self.temperature)
            and len(rows) == 1
            and 0 not in rows
            and all(math.isfinite(value) for row in self.similarity for value in row)
        )


def open_encoder(encoder: object) -> tuple[Encoder | None, Calibration | None]:
    """Return the encoder that a parameter ``encoder`` names, and its calibration if it has one.

    Raises
    ------
    InputError
        If it is neither a run folder, a built-in encoder, an `Encoder` nor None.
    """
    if encoder is None:
        return None, None
    if isinstance(encoder, (str, os.PathLike)):
        encoder = load(Path(encoder))
    if isinstance(encoder, Encoder):
        return encoder, None if encoder.folder is None else read_calibration(encoder.folder)
    raise InputError(f"encoder must be a run folder, an Encoder or None, not {quoted(encoder)}")


def read_calibration(run: str | Path) -> Calibration | None:
    """Read ``calibration.json`` of a run folder; None if there is none.

    Raises
    ------
    PscoError
        If it is damaged or of another format.
    """
    path = Path(run) / CALIBRATION
    if not path.is_file():
        return None
    content, has_checksum = read_json(path, _ADVICE)
    config = Path(run) / CONFIG
    # Runs of the first format have no checksums in any file.
    if not has_checksum and config.is_file() and verify_checksum(config, _ADVICE):
        raise damaged(path, "its sha256 is missing", _ADVICE)
    return Calibration.from_dict(content, str(path))


def calibrate_run(
    run: str | Path,
    images: ImageSet | np.ndarray,
    *,
    seed: int = 0,
    view: View | None = None,
) -> Calibration:
    """Calibrate the encoder of a run folder and write ``calibration.json`` into it.

    The random state of torch is not changed. For parameters and errors see `calibrate`.
    """
    pixels: ImageArray = images.images if isinstance(images, ImageSet) else images
    with torch.random.fork_rng():  # building the network draws weights, which are then replaced
        encoder = load(run)
    calibration = calibrate(encoder, pixels, seed=seed, view=view)
    write_json(Path(run) / CALIBRATION, calibration.as_dict())
    return calibration


def calibrate(
    encoder: Encoder,
    images: ImageArray,
    *,
    ways: tuple[int, ...] = WAYS,
    seed: int = 0,
    view: View | None = None,
) -> Calibration:
    """Measure temperatures and similarities on pseudo-tasks.

    Parameters
    ----------
    encoder
        A trained network.
    images
        (n, H, W, C) uint8, n >= 2; up to 1000 of them are used.
    ways
        Numbers of classes, at least 2; those above n are left out.
    seed
        Of the views and the tasks.
    view
        A random view; by default the first one of the encoder's recipe.

    Raises
    ------
    InputError
        If there are too few images for any of the ways.
    """
    usable = tuple(number for number in ways if 2 <= number <= min(len(images), _IMAGES))
    if not usable:
        raise InputError(
            f"calibration in {min(ways)}-way tasks requires at least {counted(min(ways), 'image')},"
            f" got {len(images)}"
        )
    random = np.random.default_rng(seed)
    chosen = np.sort(random.permutation(len(images))[:_IMAGES])
    once = view or cast(View, build_views(encoder.recipe).view_a)
    embeddings = encoder.embed(images[chosen])  # (n,)
    support = embeddings.support  # (n, d)
    query = _embed_views(encoder, images[chosen], once, seed)  # (V, n, d)
    between_classes = _similarity_of_different_images(embeddings)
    temperatures, similarities = [], []
    for number in usable:
        drawn = [random.permutation(len(chosen))[:number] for _ in range(_SUPPORTS // number)]
        tasks = torch.from_numpy(np.stack(drawn))  # (T, N)
        cosines = query[:, tasks] @ support[tasks].transpose(1, 2)  # (V, T, N, N)
        scores = cosines.flatten(0, 2).double().numpy()  # (V T N, N)
        truth = np.tile(np.arange(number), _VIEWS * len(tasks))
        temperatures.append(fit_temperature(scores, truth, default_temperature(scores, truth)))
        fractions = np.arange(1, _QUANTILES + 1) / (_QUANTILES + 1)
        similarity = scores.max(axis=1)  # (V T N,)
        shift = (between_classes - np.quantile(similarity, FALSE_REJECTION_RATE)) / 2
        similarities.append(tuple((np.quantile(similarity, fractions) + shift).tolist()))
    return Calibration(usable, tuple(temperatures), tuple(similarities))


def _similarity_of_different_images(embeddings: Embeddings) -> float:
    """Return the cosine above which two of the images (n,) look like one class."""
    cosines = embeddings.query @ embeddings.support.T  # (n, n)
    are_different = ~torch.eye(len(embeddings), dtype=torch.bool)
    return float(np.quantile(cosines[are_different].numpy(), 1 - _SAME_CLASS))


@torch.no_grad()
def _embed_views(encoder: Encoder, images: np.ndarray, view: View, seed: int) -> Tensor:
    """Embed views of views of images (n, H, W, C) as queries (V, n, d)."""
    parts = [_limit_crop(part) for part in view.parts]
    twice = replace(view, parts=[*parts, *parts], mean=[0.0], std=[1.0])
    generator = torch.Generator().manual_seed(seed)
    queries = []
    for _ in range(_VIEWS):
        for begin in range(0, len(images), _BATCH):
            viewed = twice(to_batch(images[begin : begin + _BATCH]), generator)  # in [0, 1]
            queries.append(encoder.embed_batch((255 * viewed).round().to(torch.uint8)).query)
    return torch.cat(queries).view(_VIEWS, len(images), -1)


def _limit_crop(part: Part) -> Part:
    if not isinstance(part, Crop):
        return part
    low, high = part.scale
    return replace(part, scale=(max(low, _MIN_AREA), max(high, _MIN_AREA)))
