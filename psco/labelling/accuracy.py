"""Honest estimates of the accuracy, from the labels themselves."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from psco.classifier.left_out import LeftOut
from psco.labelling.labels import STATES, Label
from psco.labelling.live import Labelled
from psco.ops.prototypes import left_out_cosines

_POINTS = 24  # of the history
_TESTED = 2000  # labels left out for one estimate, at most


class Point(NamedTuple):
    """The accuracy on labels that are left out, after so many labels."""

    labels: int
    accuracy: float
    low: float
    high: float


class Accuracy(NamedTuple):
    """What is known about the accuracy.

    Parameters
    ----------
    left_out
        Each label predicted by the others. Labels that are alone in their class do not count, nor
        do confirmed predictions, since the others have predicted them before.
    judged
        Labels that were given while a prediction stood, by confirming it or otherwise: how many
        agree with it. The suggestions are the hard pictures, so this errs on the low side.
    history
        The first estimate as it was after the first few labels, and so on up to now.
    """

    left_out: LeftOut
    judged: LeftOut
    history: list[Point]


def estimate_accuracy(
    support: Tensor, query: Tensor, labelled: Labelled, labels: Sequence[Label]
) -> Accuracy:
    """Estimate the accuracy of prototypes.

    Parameters
    ----------
    support, query
        (m, d) of all rows.
    labelled
        The rows that have a class.
    labels
        All labels, with the predictions that stood when they were given.
    """
    rows = labelled.rows
    arrays = support[rows], query[rows], labelled.targets, labelled.confirmed
    history = accuracy_history(*arrays)
    return Accuracy(left_out_accuracy(*arrays), judged_accuracy(labels), history)


def judged_accuracy(labels: Sequence[Label]) -> LeftOut:
    """Return how many labels agree with the prediction that stood when they were given."""
    judged = [each for each in labels if each.predicted is not None and each.name not in STATES]
    return LeftOut(sum(each.name == each.predicted for each in judged), len(judged))


def left_out_accuracy(
    support: Tensor, query: Tensor, targets: Tensor, confirmed: Tensor
) -> LeftOut:
    """Predict each of S labelled rows by the others.

    Parameters
    ----------
    support, query
        (S, d) of unit length.
    targets, confirmed
        (S,) their classes, and which rows are not predicted. Of more than 2,000 rows, that many
        are drawn.
    """
    ways = int(targets.max()) + 1 if len(targets) else 0
    sums = support.new_zeros((ways, support.shape[1])).index_add_(0, targets, support)
    members = torch.bincount(targets, minlength=ways)
    tested = ((members[targets] > 1) & ~confirmed).nonzero()[:, 0]
    if len(tested) > _TESTED:
        chosen = np.random.default_rng(0).permutation(len(tested))[:_TESTED]
        tested = tested[torch.from_numpy(chosen)]
    if not len(tested) or int((members > 0).sum()) < 2:
        return LeftOut(0, 0)
    cosines = left_out_cosines(query[tested], support[tested], targets[tested], sums)
    cosines[:, members == 0] = -torch.inf
    correct = (cosines.argmax(dim=1) == targets[tested]).sum()
    return LeftOut(int(correct), len(tested))


def accuracy_history(
    support: Tensor, query: Tensor, targets: Tensor, confirmed: Tensor
) -> list[Point]:
    """Return `left_out_accuracy` of the first rows, for up to 24 numbers of rows up to all."""
    total = len(targets)
    numbers = np.unique(np.geomspace(2, max(2, total), _POINTS).round().astype(int))
    points = []
    for number in numbers[numbers <= total].tolist():
        first = (each[:number] for each in (support, query, targets, confirmed))
        found = left_out_accuracy(*first)
        if found.total:
            points.append(Point(number, found.accuracy, *found.interval))
    return points
