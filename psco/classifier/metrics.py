"""Quality of a classifier's confidence: calibration error, AUROC, and open-set tasks."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import torch
from numpy.random import RandomState

from psco.classifier.calibration import open_encoder
from psco.classifier.fitting import AUTO, fit_model
from psco.classifier.model import Supports
from psco.data import ImageSet
from psco.data.tasks import Tasks, sample_tasks
from psco.errors import InputError, quoted
from psco.evaluation.embed import Encoder
from psco.evaluation.rules import Embeddings

_BINS = 10  # of the reliability diagram


def expected_calibration_error(
    probabilities: np.ndarray, correct: np.ndarray, bins: int = 15
) -> float:
    """Return the expected calibration error of predictions.

    Parameters
    ----------
    probabilities
        (n,) probability of the predicted class, in [0, 1].
    correct
        (n,) whether the prediction is correct.
    bins
        Number of intervals of equal width for the probability.

    Returns
    -------
    float
        |mean probability − accuracy| of each interval, averaged with the number of predictions in
        it as the weight: 0 is perfect, 1 the worst.

    Raises
    ------
    InputError
        If there are no predictions, the lengths differ, or a probability is not in [0, 1].
    """
    number, confidence, accuracy = reliability(probabilities, correct, bins)
    return float(np.abs(confidence - accuracy) @ number / number.sum())


def reliability(
    probabilities: np.ndarray, correct: np.ndarray, bins: int = 15
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return the reliability diagram of predictions.

    Parameters
    ----------
    probabilities, correct, bins
        As in `expected_calibration_error`.

    Returns
    -------
    tuple
        (bins,) number of predictions in each interval, their mean probability and their accuracy;
        the latter two are 0 in empty intervals.

    Raises
    ------
    InputError
        As in `expected_calibration_error`.
    """
    confidence, accuracy = np.asarray(probabilities, float), np.asarray(correct, float)
    if confidence.ndim != 1 or confidence.shape != accuracy.shape or len(confidence) == 0:
        raise InputError(
            f"probabilities and correct must be of one shape (n,) with n > 0, got "
            f"{confidence.shape} and {accuracy.shape}"
        )
    if not (confidence.min() >= 0 and confidence.max() <= 1):
        raise InputError(
            f"probabilities must be in [0, 1], got values from {confidence.min()} to "
            f"{confidence.max()}"
        )
    if bins < 1:
        raise InputError(f"bins must be at least 1, got {bins}")
    interval = np.minimum((confidence * bins).astype(int), bins - 1)
    number = np.bincount(interval, minlength=bins)
    divisor = np.maximum(number, 1)
    means = [
        np.bincount(interval, values, minlength=bins) / divisor for values in (confidence, accuracy)
    ]
    return number, means[0], means[1]


def auroc(genuine: np.ndarray, foreign: np.ndarray) -> float:
    """Return the area under the ROC curve of a score.

    Parameters
    ----------
    genuine, foreign
        (n,) and (m,) scores, which should be larger for genuine images.

    Returns
    -------
    float
        Fraction of pairs in which the genuine score is the larger one; ties count half. 0.5 is
        chance, 1 is perfect.

    Raises
    ------
    InputError
        If there are no scores of one kind.
    """
    if len(genuine) == 0 or len(foreign) == 0:
        raise InputError(
            f"AUROC requires genuine and foreign scores, got {len(genuine)} and {len(foreign)}"
        )
    ordered = np.sort(foreign)
    below = np.searchsorted(ordered, genuine, side="left")
    not_above = np.searchsorted(ordered, genuine, side="right")
    return float((below + not_above).sum() / (2 * len(genuine) * len(foreign)))


@dataclass(frozen=True)
class OpenSetQuality:
    """Results on tasks in which half of the queries belong to none of the classes.

    Fractions and probabilities are in [0, 1].

    Parameters
    ----------
    data, split, ways, shots, queries, tasks, seed
        What was measured on; ``queries`` per class.
    accuracy
        Fraction of genuine queries that are classified correctly, before any is rejected.
    calibration_error
        Expected calibration error of the genuine queries; see `expected_calibration_error`.
    auroc
        Of the similarity by which queries are rejected, genuine against foreign ones.
    false_rejections, foreign_rejections
        Fraction of the genuine and of the foreign queries that ``reject_below="auto"`` rejects.
    reliability
        For ten intervals of the probability: number of genuine queries, their mean probability
        and their accuracy.
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
        """Return the fields for a JSON file."""
        return asdict(self)


def open_set_quality(
    encoder: Encoder | str,
    images: ImageSet,
    ways: int = 5,
    shots: int = 1,
    queries: int = 15,
    tasks: int = 200,
    seed: int = 0,
    embeddings: Embeddings | None = None,
) -> OpenSetQuality:
    """Measure probabilities and rejection on tasks with images of foreign classes.

    A task draws 2 · ways classes. A classifier is fitted to the first half of them, as
    `FewShotClassifier` does with ``reject_below="auto"``; the other half is foreign to it.

    Parameters
    ----------
    encoder
        A run folder, or the encoder of one.
    images
        A labelled image set with classes that are new to the encoder.
    ways, shots, queries, tasks
        Classes of a classifier, supports and queries per class, number of tasks.
    seed
        Of the tasks.
    embeddings
        Embeddings (n,) of the images, if they are known already.

    Raises
    ------
    InputError
        If the images have no labels or too few classes, or shots is 1 and the run has no
        ``calibration.json``.
    """
    network, calibration = open_encoder(encoder)
    if network is None:
        raise InputError("open_set_quality requires an encoder, got None; pass a run folder")
    if images.labels is None:
        raise InputError(
            f"open_set_quality requires labelled images, got {quoted(images.name)} without labels"
        )
    drawn = sample_tasks(images.labels, 2 * ways, shots, queries, tasks, seed)
    if embeddings is None:
        embeddings = network.embed(images.images)
    confidence, correct, genuine, foreign, rejected = [], [], [], [], []
    labels = np.arange(ways).repeat(shots)
    truth = np.arange(ways).repeat(queries)
    for support, own, others in _split_tasks(embeddings, drawn, ways):
        model = fit_model(
            Supports(support, labels),
            heads=network.heads,
            calibration=calibration,
            random=RandomState(seed),
            reject_below=AUTO,
        )
        on_own, on_others = model.predict(own), model.predict(others)
        confidence.append(on_own.probabilities.max(axis=1))
        correct.append(on_own.probabilities.argmax(axis=1) == truth)
        genuine.append(model.similarity(own))
        foreign.append(model.similarity(others))
        rejected.append([on_own.rejected.mean(), on_others.rejected.mean()])
    sure, right = np.concatenate(confidence), np.concatenate(correct)
    false_rejections, foreign_rejections = np.mean(rejected, axis=0).tolist()
    rows = zip(*(column.tolist() for column in reliability(sure, right, _BINS)), strict=True)
    return OpenSetQuality(
        images.name,
        images.split,
        ways,
        shots,
        queries,
        tasks,
        seed,
        float(right.mean()),
        expected_calibration_error(sure, right),
        auroc(np.concatenate(genuine), np.concatenate(foreign)),
        false_rejections,
        foreign_rejections,
        tuple(rows),
    )


def _split_tasks(
    embeddings: Embeddings, drawn: Tasks, ways: int
) -> Iterator[tuple[Embeddings, Embeddings, Embeddings]]:
    """Yield supports (N K,), genuine queries (N Q,) and foreign queries (N Q,) of each task."""
    for support, query in zip(drawn.support, drawn.query, strict=True):
        parts = support[:ways], query[:ways], query[ways:]
        a, b, c = (embeddings[torch.from_numpy(part.reshape(-1))] for part in parts)
        yield a, b, c
