"""What to expect of a run's scores, learnt from unlabelled images alone.

In a pseudo-task every image is a class of its own. The image as it is serves as the single
support, and random views of it are the queries: views of views, because a single view is what the
network was trained to see through, while two pictures of one class differ by more than that.

Recipes differ in how much their crops leave of an image, and two that leave a fifth in turn show
less of it than any picture of its class. So the crops here leave 0.35 of the area at least.

Views show how different two pictures of one thing may look, to a network that was trained to see
through views; how alike pictures of different things look to it is a second sign of where a class
ends, and one that errs to the other side (results/classifier/README.md). Where to reject is half
way between the two.

``calibration.json`` in the run folder keeps the result for classifiers with one shot per class,
which have no support to spare for finding it out.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import cast

import numpy as np
import torch
from torch import Tensor

from psco.classifier.confidence import FALSE_REJECTIONS, default_temperature, fit_temperature
from psco.data import ImageSet
from psco.data.imageset import ImageArray
from psco.errors import InputError, PscoError
from psco.evaluation.embed import Encoder, load
from psco.evaluation.rules import Embeddings
from psco.files.checksums import read_json, write_json
from psco.recipes.build import build_views
from psco.views import Crop, Part, View, to_batch

CALIBRATION = "calibration.json"
FORMAT = 1
WAYS = (2, 5, 10, 20, 50)
_IMAGES, _VIEWS, _QUANTILES = 1000, 4, 39
_AREA = 0.35  # of an image that a crop leaves at least
_ALIKE = 0.03  # share of the pairs of different images that are more alike than strangers are
_SUPPORTS = 2000  # in all tasks of a number of ways together
_BATCH = 250


@dataclass(frozen=True)
class Calibration:
    """Temperature and likeness of PsCo's prototypes in one-shot tasks of several ways.

    Parameters
    ----------
    ways
        Numbers of classes, ascending.
    temperature
        For each of them the temperature under which cosines are probabilities.
    likeness
        For each of them quantiles, equally spaced, of the largest cosine of genuine queries, as
        far as it can be told without labels.
    """

    ways: tuple[int, ...]
    temperature: tuple[float, ...]
    likeness: tuple[tuple[float, ...], ...]

    def temperature_for(self, ways: int) -> float:
        """Interpolate the temperature for any number of classes."""
        return float(np.interp(np.log(ways), np.log(self.ways), self.temperature))

    def likeness_for(self, ways: int) -> np.ndarray:
        """Interpolate the quantiles of the likeness for any number of classes."""
        table = np.array(self.likeness).T  # (quantiles, ways)
        return np.array([np.interp(np.log(ways), np.log(self.ways), row) for row in table])

    def as_dict(self) -> dict[str, object]:
        """Give what is written to files."""
        return {"format": FORMAT, **asdict(self)}

    @classmethod
    def from_dict(cls, facts: dict[str, object], source: str) -> Calibration:
        """Read what `as_dict` gave; ``source`` names it in errors."""
        try:
            if facts["format"] != FORMAT:
                raise PscoError(
                    f"{source} has format {facts['format']!r} and this version reads {FORMAT}; "
                    f"remove it, or make it anew"
                )
            ways, temperature, likeness = (facts[n] for n in ("ways", "temperature", "likeness"))
            return cls(
                tuple(int(number) for number in ways),  # type: ignore[attr-defined]
                tuple(float(number) for number in temperature),  # type: ignore[attr-defined]
                tuple(tuple(map(float, row)) for row in likeness),  # type: ignore[attr-defined]
            )
        except (KeyError, TypeError, ValueError):
            raise PscoError(f"{source} is damaged; remove it, or make it anew") from None


def calibrate(
    encoder: Encoder,
    images: ImageArray,
    *,
    ways: tuple[int, ...] = WAYS,
    seed: int = 0,
    view: View | None = None,
) -> Calibration:
    """Learn temperatures and likenesses from pseudo-tasks.

    Parameters
    ----------
    encoder
        A trained network.
    images
        (n, H, W, C) uint8, n >= 2, of which 1000 are used.
    ways
        Numbers of classes, from 2 on; those above n are left out.
    seed
        Decides the views and the tasks.
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
            f"{len(images)} images are too few: pseudo-tasks of {min(ways)} ways need as many"
        )
    random = np.random.default_rng(seed)
    chosen = np.sort(random.permutation(len(images))[:_IMAGES])
    once = view or cast(View, build_views(encoder.recipe).view_a)
    points = encoder.embed(images[chosen])  # (n,)
    support, query = points.support, _embed_views(encoder, images[chosen], once, seed)  # (V, n, d)
    strange = _likeness_of_strangers(points)
    temperatures, likenesses = [], []
    for number in usable:
        drawn = [random.permutation(len(chosen))[:number] for _ in range(_SUPPORTS // number)]
        tasks = torch.from_numpy(np.stack(drawn))  # (T, N)
        scores = query[:, tasks] @ support[tasks].transpose(1, 2)  # (V, T, N, N)
        table = scores.flatten(0, 2).double().numpy()  # (V T N, N)
        truth = np.tile(np.arange(number), _VIEWS * len(tasks))
        temperatures.append(fit_temperature(table, truth, default_temperature(table, truth)))
        shares = np.arange(1, _QUANTILES + 1) / (_QUANTILES + 1)
        likeness = table.max(axis=1)  # (V T N,)
        half_way = (strange - np.quantile(likeness, FALSE_REJECTIONS)) / 2
        likenesses.append(tuple((np.quantile(likeness, shares) + half_way).tolist()))
    return Calibration(usable, tuple(temperatures), tuple(likenesses))


def pseudo_temperature(
    encoder: Encoder, images: ImageArray, ways: int = 5, *, seed: int = 0
) -> float:
    """Give the temperature of one-shot tasks of so many ways; see `calibrate`."""
    return calibrate(encoder, images, ways=(ways,), seed=seed).temperature[0]


def calibrate_run(
    run: str | Path,
    images: ImageSet | np.ndarray,
    *,
    seed: int = 0,
    view: View | None = None,
) -> Calibration:
    """Calibrate the network of a run folder and write ``calibration.json`` into it.

    The random state of torch stays as it is. For parameters and errors see `calibrate`.
    """
    pixels: ImageArray = images.images if isinstance(images, ImageSet) else images
    with torch.random.fork_rng():  # fresh weights, which are about to be replaced, use it
        encoder = load(run)
    found = calibrate(encoder, pixels, seed=seed, view=view)
    write_json(Path(run) / CALIBRATION, found.as_dict())
    return found


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
    facts, _ = read_json(path, "remove it, or make it anew")
    return Calibration.from_dict(facts, str(path))


def _likeness_of_strangers(points: Embeddings) -> float:
    """Give the cosine that few pairs of different images (n,) exceed: hardly any is of a class."""
    cosines = points.query @ points.support.T  # (n, n)
    apart = ~torch.eye(len(points), dtype=torch.bool)
    return float(np.quantile(cosines[apart].numpy(), 1 - _ALIKE))


@torch.no_grad()
def _embed_views(encoder: Encoder, images: np.ndarray, view: View, seed: int) -> Tensor:
    """Embed views of views of images (n, H, W, C) as queries (V, n, d)."""
    parts = [_milder(part) for part in view.parts]
    twice = replace(view, parts=[*parts, *parts], mean=[0.0], std=[1.0])
    generator = torch.Generator().manual_seed(seed)
    queries = []
    for _ in range(_VIEWS):
        for begin in range(0, len(images), _BATCH):
            pictures = twice(to_batch(images[begin : begin + _BATCH]), generator)  # in [0, 1]
            queries.append(encoder.embed_batch((255 * pictures).round().to(torch.uint8)).query)
    return torch.cat(queries).view(_VIEWS, len(images), -1)


def _milder(part: Part) -> Part:
    if not isinstance(part, Crop):
        return part
    least, most = part.scale
    return replace(part, scale=(max(least, _AREA), max(most, _AREA)))
