"""How far a classifier can be trusted: measured on tasks with pictures of foreign classes."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import torch
from numpy.random import RandomState

from psco.classifier.confidence import auroc, expected_calibration_error, reliability
from psco.classifier.inputs import open_encoder
from psco.classifier.model import AUTO, Choices, learn
from psco.classifier.supports import Shots
from psco.data import ImageSet
from psco.data.tasks import Tasks, sample_tasks
from psco.errors import InputError
from psco.evaluation.embed import Encoder
from psco.evaluation.rules import Embeddings

_BINS = 10  # of the reliability diagram


@dataclass(frozen=True)
class OpenSetQuality:
    """What was found out in tasks of which half the queries belong to no class.

    Shares and probabilities are in [0, 1].

    Parameters
    ----------
    data, split, ways, shots, queries, tasks, seed
        What was measured on; ``queries`` of each class.
    accuracy
        Share of genuine queries that are classified right, before any is rejected.
    calibration_error
        Expected calibration error of the genuine queries; see `expected_calibration_error`.
    auroc
        Of the likeness by which queries are rejected, genuine against foreign ones.
    false_rejections, foreign_rejections
        Share of the genuine and of the foreign queries that ``reject_below="auto"`` rejects.
    reliability
        For ten intervals of the probability: number of genuine queries, their mean probability,
        share of right ones.
    """

    data: str
    split: str
    ways: int
    shots: int
    queries: int
    tasks: int
    seed: int
    accuracy: float
    calibration_error: float
    auroc: float
    false_rejections: float
    foreign_rejections: float
    reliability: tuple[tuple[int, float, float], ...]

    def as_dict(self) -> dict[str, Any]:
        """Give what is written to files."""
        return asdict(self)


def open_set_quality(
    encoder: Encoder | str,
    images: ImageSet,
    ways: int = 5,
    shots: int = 1,
    queries: int = 15,
    tasks: int = 200,
    seed: int = 0,
    points: Embeddings | None = None,
) -> OpenSetQuality:
    """Measure probabilities and rejection on tasks with foreign pictures.

    A task draws 2 · ways classes. The first half are the classes of a classifier, which is made as
    `FewShotClassifier` makes it with ``reject_below="auto"``; the others are foreign to it.

    Parameters
    ----------
    encoder
        A run folder, or the encoder of one.
    images
        A labelled image set of classes that training has not seen.
    ways, shots, queries, tasks
        Classes of a classifier, supports and queries of a class, number of tasks.
    seed
        Decides the tasks.
    points
        The images as the encoder embeds them, if that has been done already.

    Raises
    ------
    InputError
        If the images have no labels or too few of them, or shots is 1 and the run has no
        ``calibration.json``.
    """
    network, calibration = open_encoder(encoder)
    if network is None or images.labels is None:
        raise InputError(
            f"quality is measured with an encoder, on labelled images: {images.name!r}"
        )
    drawn = sample_tasks(images.labels, 2 * ways, shots, queries, tasks, seed)
    points = network.embed(images.images) if points is None else points
    chances, right, genuine, foreign, rejected = [], [], [], [], []
    labels = np.arange(ways).repeat(shots)
    truth = np.arange(ways).repeat(queries)
    for support, known, other in _gathered(points, drawn, ways):
        model = learn(
            Shots(support, labels),
            Choices(reject_below=AUTO),
            network.heads,
            calibration,
            RandomState(seed),
        )
        judged, strange = model.judge(known), model.judge(other)
        chances.append(judged.probabilities.max(axis=1))
        right.append(judged.probabilities.argmax(axis=1) == truth)
        genuine.append(model.likeness(known))
        foreign.append(model.likeness(other))
        rejected.append([judged.rejected.mean(), strange.rejected.mean()])
    sure, correct = np.concatenate(chances), np.concatenate(right)
    false_rejections, foreign_rejections = np.mean(rejected, axis=0).tolist()
    rows = zip(*(column.tolist() for column in reliability(sure, correct, _BINS)), strict=True)
    return OpenSetQuality(
        images.name,
        images.split,
        ways,
        shots,
        queries,
        tasks,
        seed,
        float(correct.mean()),
        expected_calibration_error(sure, correct),
        auroc(np.concatenate(genuine), np.concatenate(foreign)),
        false_rejections,
        foreign_rejections,
        tuple(rows),
    )


def _gathered(
    points: Embeddings, drawn: Tasks, ways: int
) -> Iterator[tuple[Embeddings, Embeddings, Embeddings]]:
    """Give supports (N K,), genuine queries (N Q,) and foreign ones (N Q,) of each task."""
    for support, query in zip(drawn.support, drawn.query, strict=True):
        parts = support[:ways], query[:ways], query[ways:]
        a, b, c = (points[torch.from_numpy(part.reshape(-1))] for part in parts)
        yield a, b, c
