"""A prototype classifier that follows the labels: a change refits only the classes it concerns.

Its numbers are those of `FewShotClassifier` with the rule ``prototype`` and automatic rejection:
the same prototypes, temperature and threshold.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from numpy.random import RandomState
from torch import Tensor

from psco.classifier.calibration import Calibration
from psco.classifier.confidence import (
    default_temperature,
    fit_temperature,
    probabilities,
    rejection_threshold,
)
from psco.classifier.left_out import choose_left_out
from psco.ops.prototypes import left_out_cosines

_SCORES_AT_ONCE = 1 << 22  # scores turned into probabilities at a time


@dataclass(frozen=True)
class Predictions:
    """The predictions for n pictures.

    Parameters
    ----------
    revision
        Of the labels they follow from.
    classes
        Names of the N classes.
    number
        (n,) the most probable class; −1 where there is none: without labels, for broken pictures.
    probability
        (n,) calibrated probability of that class.
    margin
        (n,) its probability minus that of the second class.
    unknown
        (n,) whether the picture is too far from all classes to belong to one.
    similarity
        (n,) cosine with the nearest prototype.
    """

    revision: int
    classes: list[str]
    number: np.ndarray
    probability: np.ndarray
    margin: np.ndarray
    unknown: np.ndarray
    similarity: np.ndarray

    def name(self, picture: int) -> str | None:
        """Return the predicted class of a picture; None if there is no prediction."""
        number = int(self.number[picture])
        return None if number < 0 else self.classes[number]


def no_predictions(revision: int, count: int) -> Predictions:
    """Return the predictions for pictures as long as there is no class."""
    zeros = np.zeros(count, dtype=np.float32)
    return Predictions(revision, [], np.full(count, -1), zeros, zeros, zeros > 0, zeros)


class Labelled(NamedTuple):
    """The rows that have a class.

    Parameters
    ----------
    rows, targets
        (S,) rows in the order in which they were labelled, and their classes in 0..N−1.
    classes
        Names of the N classes; every class has a row.
    confirmed
        (S,) whether the class is a prediction that was confirmed.
    """

    rows: Tensor
    targets: Tensor
    classes: list[str]
    confirmed: Tensor


class Mistake(NamedTuple):
    """A label that the other labels contradict.

    Parameters
    ----------
    number, name
        The row and its label.
    expected, probability
        The class that the other labels predict, and its probability.
    """

    number: int
    name: str
    expected: str
    probability: float


class Found(NamedTuple):
    """The columns of `Predictions`, (r,) each, for r rows."""

    number: Tensor
    probability: Tensor
    margin: Tensor
    unknown: Tensor
    similarity: Tensor


class LiveClassifier:
    """Prototypes of labelled rows, and the scores of all rows.

    Parameters
    ----------
    support, query
        (m, d) of unit length.
    calibration
        Of the encoder, if it has one.

    Attributes
    ----------
    temperature, threshold
        As in `Model`; the threshold is None as long as nothing is known about it.
    """

    def __init__(self, support: Tensor, query: Tensor, calibration: Calibration | None) -> None:
        self.support, self.query = support, query
        self._calibration = calibration
        nothing = torch.empty(0, dtype=torch.int64)
        self._labelled = Labelled(nothing, nothing, [], nothing > 0)
        self._targets = torch.full((self.rows,), -1)  # (m,), −1 for rows without a class
        self._sums = support.new_zeros((0, support.shape[1]))  # (N, d)
        self._scores = support.new_zeros((0, self.rows))  # (N, m)
        self.temperature = 1.0
        self.threshold: float | None = None

    @property
    def rows(self) -> int:
        """Number m of rows."""
        return len(self.support)

    def refit(self, labelled: Labelled) -> None:
        """Follow new labels; classes that have kept their rows are not computed again."""
        classes, before = labelled.classes, self._labelled.classes
        targets = torch.full((self.rows,), -1)
        targets[labelled.rows] = labelled.targets
        changed = self._changed(targets, classes)
        place = {name: number for number, name in enumerate(before)}
        kept = [place.get(name, -1) for name in classes]
        if kept != list(range(len(before))):
            self._sums = _take(self._sums, kept)
            self._scores = _take(self._scores, kept)
        for number in changed:
            members = labelled.rows[labelled.targets == number].sort().values
            self._sums[number] = self.support[members].sum(dim=0)
        if changed:
            fresh = F.normalize(self._sums[changed], dim=1) @ self.query.T  # (k, m)
            self._scores[changed] = fresh
        self._targets, self._labelled = targets, labelled
        self._calibrate()

    def predict(self, rows: Tensor | None = None) -> Found:
        """Classify rows, all of them by default; at least one class is needed."""
        scores = self._scores if rows is None else self._scores[:, rows]  # (N, r)
        ways, number = scores.shape
        step = max(1, _SCORES_AT_ONCE // ways)
        parts = [self._predict(scores[:, i : i + step]) for i in range(0, number, step)]
        return Found(*(torch.cat(column) for column in zip(*parts, strict=True)))

    def mistakes(self) -> list[Mistake]:
        """Return the labels that the others contradict, the most probable mistakes first.

        A row that is alone in its class cannot be predicted by others and is left out.
        """
        rows, targets, classes, _ = self._labelled
        several = torch.bincount(targets, minlength=len(classes))[targets] > 1
        rows, targets = rows[several], targets[several]
        if len(classes) < 2 or not len(rows):
            return []
        scores = self._left_out(rows)
        chances = probabilities(scores, self.temperature)
        expected = scores.argmax(axis=1)
        found = [
            Mistake(
                number=int(rows[i]),
                name=classes[int(targets[i])],
                expected=classes[expected[i]],
                probability=float(chances[i, expected[i]]),
            )
            for i in np.flatnonzero(expected != targets.numpy())
        ]
        return sorted(found, key=lambda each: -each.probability)

    def _left_out(self, rows: Tensor) -> np.ndarray:
        """Return the scores (r, N) of labelled rows, each without its own label."""
        cosines = left_out_cosines(
            self.query[rows], self.support[rows], self._targets[rows], self._sums
        )
        return cosines.double().numpy()

    def _predict(self, scores: Tensor) -> Found:
        similarity, best = scores.max(dim=0)  # (r,)
        weights = (scores - similarity).div_(self.temperature).exp_()  # (N, r)
        chance = 1 / weights.sum(dim=0)
        weights.scatter_(0, best[None], 0.0)
        margin = chance - weights.amax(dim=0) * chance
        threshold = -torch.inf if self.threshold is None else self.threshold
        return Found(best, chance, margin, similarity < threshold, similarity)

    def _changed(self, targets: Tensor, classes: list[str]) -> list[int]:
        """Return the numbers of the classes whose rows are not those of before."""
        place = {name: number for number, name in enumerate(classes)}
        moved = torch.tensor([*(place.get(name, -1) for name in self._labelled.classes), -1])
        before = moved[self._targets]  # in numbers of now; −1 picks the last, which is −1
        rows = before != targets
        numbers = {*before[rows].tolist(), *targets[rows].tolist()}
        return sorted(number for number in numbers if number >= 0)

    def _calibrate(self) -> None:
        self.temperature, self.threshold = 1.0, None
        ways = len(self._labelled.classes)
        if not ways:
            return
        rows = self._labelled.rows.sort().values
        truth = self._targets[rows]
        chosen = torch.from_numpy(choose_left_out(truth, RandomState(0)))
        scores = self._left_out(rows[chosen])
        similarity = None
        if self._calibration is not None:
            expected = self._calibration.temperature_for(ways)
            similarity = self._calibration.similarity_for(ways)
        else:
            own = self._scores[:, rows].T.double().numpy()
            expected = default_temperature(own, truth.numpy())
        self.temperature = fit_temperature(scores, truth[chosen].numpy(), expected)
        genuine = scores.max(axis=1)
        if 2 * len(torch.unique(truth[chosen])) < ways:
            # Many labels of few classes, as after confirming a row, say little about the others.
            genuine = genuine[:0]
        if similarity is not None or len(genuine) > 1:
            self.threshold = rejection_threshold(genuine, similarity)


def _take(rows: Tensor, numbers: list[int]) -> Tensor:
    """Return rows by number; those with a negative number are zeros, to be filled in."""
    taken = rows.new_zeros((len(numbers), rows.shape[1]))
    present = [place for place, number in enumerate(numbers) if number >= 0]
    taken[present] = rows[[numbers[place] for place in present]]
    return taken
