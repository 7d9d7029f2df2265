"""From shots to a model: the rule, adapted heads, the temperature and the threshold."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, TypeGuard

import numpy as np
import torch
from numpy.random import RandomState

from psco.classifier.bare import Standard
from psco.classifier.calibration import Calibration
from psco.classifier.confidence import (
    default_temperature,
    fit_temperature,
    probabilities,
    rejection_threshold,
)
from psco.classifier.supports import LeftOut, Shots, Task
from psco.errors import InputError
from psco.evaluation.rules import RULES, Embeddings, Heads
from psco.evaluation.rules.nearest_mean import NearestMean
from psco.evaluation.rules.prototype import Prototype, adapt_heads, project, resolve_adaptation
from psco.ops.prototypes import class_means, prototypes

AUTO = "auto"
UNKNOWN = "unknown"
_LEFT_OUT = 200  # supports that are left out in turn, at most
_ADAPTED_ROWS = 100_000  # rows in all steps of all tasks whose heads are trained to leave one out


@dataclass(frozen=True)
class Choices:
    """What a person decides about a classifier; see `FewShotClassifier`."""

    rule: str = "prototype"
    options: Mapping[str, Any] | None = None
    adapt_steps: int = 0
    temperature: float | str = AUTO
    reject_below: float | str | None = None

    def settled_rule(self, heads: Heads | None) -> tuple[str, dict[str, Any]]:
        """Give the name of the rule and all its options.

        Raises
        ------
        InputError
            If there is no such rule or option, or the choices contradict one another.
        """
        name, given = resolve_adaptation(self.rule, self.options, self.adapt_steps)
        if heads is None and name == "adapt":
            raise InputError(
                "there are no heads to adapt: bare features have none, nor has this encoder"
            )
        options = RULES.options(name, given)
        if getattr(RULES[name](**options), "needs_pixels", False):
            raise InputError(
                f"rule {name!r} trains a whole network for every task: psco evaluate has it, "
                f"classifiers take others, such as 'prototype'"
            )
        return name, options

    def check(self) -> None:
        """Raise InputError for a number that is out of range."""
        temperature, reject = self.temperature, self.reject_below
        if temperature != AUTO and not (_is_number(temperature) and 0 < temperature < np.inf):
            raise InputError(f"temperature must be 'auto' or a number > 0, not {temperature!r}")
        if reject not in (None, AUTO) and not (_is_number(reject) and 0 <= reject <= 1):
            raise InputError(
                f"reject_below must be None, 'auto' or a probability in [0, 1], not {reject!r}"
            )


class Judgement(NamedTuple):
    """What a model says about n points.

    Parameters
    ----------
    labels
        (n,) labels; ``"unknown"`` where rejected, and then objects unless labels are texts.
    probabilities
        (n, N) of the classes.
    rejected
        (n,) bool: whether a point belongs to no class.
    """

    labels: np.ndarray
    probabilities: np.ndarray
    rejected: np.ndarray


@dataclass(frozen=True)
class Model:
    """A classifier of points, ready for use.

    Parameters
    ----------
    task
        The supports and the rule.
    classes
        (N,) labels, sorted.
    prototypes
        (N, width) centres of the classes: of unit length, or the means of bare features.
    standard
        How bare features are brought into shape; None with a network.
    adapted
        The heads that were trained on the supports, if any.
    temperature
        Of the probabilities.
    threshold
        Reject what is below it: a likeness if ``by_likeness``, else a probability; None never.
    """

    task: Task
    classes: np.ndarray
    prototypes: np.ndarray
    standard: Standard | None = None
    adapted: Heads | None = None
    temperature: float = 1.0
    threshold: float | None = None
    by_likeness: bool = False

    def judge(self, points: Embeddings) -> Judgement:
        """Judge points (n,), as the network or the person gave them."""
        scores = self.scores(points)
        rejected = self._rejected(points, scores)
        labels = self.classes[scores.argmax(axis=1)]
        if rejected.any() and labels.dtype.kind != "U":
            labels = labels.astype(object)
        return Judgement(
            np.where(rejected, UNKNOWN, labels) if rejected.any() else labels,
            probabilities(scores, self.temperature),
            rejected,
        )

    def ready(self, points: Embeddings) -> Embeddings:
        """Bring points, as the network or the person gave them, to where the supports are."""
        if self.standard is not None:
            return self.standard(points)
        return points if self.adapted is None else project(points.features, self.adapted)

    def scores(self, points: Embeddings) -> np.ndarray:
        """Score points (n,) for every class: (n, N)."""
        return self.task.scores(self.ready(points))

    def likeness(self, points: Embeddings) -> np.ndarray:
        """Tell how near points (n,) are to the nearest class: (n,); see `Task.likeness`."""
        return self.task.likeness(self.ready(points))

    def nearest(self, points: Embeddings) -> np.ndarray:
        """Give the index of the support that is most like each point: (n,)."""
        return self.task.nearest(self.ready(points))

    def with_heads(self, heads: Heads | None) -> Model:
        """Give the same model beside other heads of the network; adapted ones stay."""
        return replace(self, task=replace(self.task, heads=self.adapted or heads))

    def _rejected(self, points: Embeddings, scores: np.ndarray) -> np.ndarray:
        if self.threshold is None:
            return np.zeros(len(scores), dtype=bool)
        if self.by_likeness:
            below: np.ndarray = self.likeness(points) < self.threshold
        else:
            below = probabilities(scores, self.temperature).max(axis=1) < self.threshold
        return below


def learn(
    shots: Shots,
    choices: Choices,
    heads: Heads | None,
    calibration: Calibration | None,
    random: RandomState,
) -> Model:
    """Make a model of shots.

    Parameters
    ----------
    shots
        Supports with labels; any number per class.
    choices
        The rule and so on.
    heads
        Of the network that made the points; None if it has none, and for bare features.
    calibration
        What is known about the network's one-shot tasks, if anything.
    random
        Chooses supports to leave out when there are many.

    Raises
    ------
    InputError
        If the choices are no good, or an automatic threshold has nothing to go by.
    """
    choices.check()
    name, options = choices.settled_rule(heads)
    if choices.reject_below is not None and UNKNOWN in shots.labels.tolist():
        raise InputError(f"a class is called {UNKNOWN!r}, like what is rejected; rename it")
    adapted = None
    if name == "adapt" and heads is not None:
        _, numbers = np.unique(shots.labels, return_inverse=True)
        features = shots.points.features
        adapted = adapt_heads(features, torch.from_numpy(numbers), heads, options["steps"])
    model = assemble(shots, name, options, heads, adapted)
    temperature, reject = choices.temperature, choices.reject_below
    left = LeftOut.nothing(len(model.classes))
    if AUTO in (temperature, reject):
        trial, most = model.task, _LEFT_OUT
        if adapted is not None:
            # Heads that have seen a support judge it too well: they are trained anew without it.
            rule = RULES[name](**options)
            trial = replace(trial, points=shots.points, rule=rule, centres=rule, heads=heads)
            rows = len(shots.points) * max(1, options["steps"])
            most = max(2, min(most, _ADAPTED_ROWS // rows)) if len(shots.points) > 2 else 0
        left = trial.leave_one_out(random, most)
    if temperature == AUTO:
        temperature = _fit(model, left, calibration if name == "prototype" else None)
    if reject == AUTO:
        known = calibration if adapted is None else None
        expected = None if known is None else known.likeness_for(len(model.classes))
        reject = rejection_threshold(left.likeness, expected)
    return replace(
        model,
        temperature=float(temperature),
        threshold=None if reject is None else float(reject),
        by_likeness=choices.reject_below == AUTO,
    )


def assemble(
    shots: Shots,
    name: str,
    options: Mapping[str, Any],
    heads: Heads | None,
    adapted: Heads | None = None,
) -> Model:
    """Make a model of shots, a rule and heads as they are: nothing is trained or calibrated."""
    classes, numbers = np.unique(shots.labels, return_inverse=True)
    labels, ways = torch.from_numpy(numbers.reshape(-1)), len(classes)
    if shots.bare:
        standard = Standard.of(shots.points.features)
        nearest = NearestMean()
        rule = nearest if name == "prototype" else RULES[name](**options)
        task = Task(standard(shots.points), labels, ways, rule, nearest)
        centres = class_means(shots.points.features, labels, ways)
        return Model(task, classes, centres.numpy(), standard)
    points = shots.points if adapted is None else project(shots.points.features, adapted)
    prototype = Prototype()
    rule = prototype if name in ("prototype", "adapt") else RULES[name](**options)
    task = Task(points, labels, ways, rule, prototype, adapted or heads)
    return Model(task, classes, prototypes(points.support, labels, ways).numpy(), None, adapted)


def _fit(model: Model, left: LeftOut, calibration: Calibration | None) -> float:
    if calibration is not None:
        expected = calibration.temperature_for(len(model.classes))
    else:
        own = model.task.scores(model.task.points)
        expected = default_temperature(own, model.task.labels.numpy())
    return fit_temperature(left.scores, left.truth, expected)


def _is_number(value: object) -> TypeGuard[float]:
    return isinstance(value, (int, float, np.integer, np.floating)) and not isinstance(value, bool)
