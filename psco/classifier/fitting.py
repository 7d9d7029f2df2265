"""From supports to a model: resolve the rule, then fit the temperature and the threshold."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, TypeGuard

import numpy as np
import torch
from numpy.random import RandomState
from torch import Tensor

from psco.classifier.calibration import Calibration
from psco.classifier.confidence import default_temperature, fit_temperature, rejection_threshold
from psco.classifier.model import UNKNOWN, Model, Supports
from psco.errors import InputError
from psco.evaluation.rules import RULES, Heads, SupportSet
from psco.evaluation.rules.prototype import adapt_heads, resolve_adaptation

AUTO = "auto"
AUTO_RULES = ("prototype", "ridge", "logistic")
_FEW_SHOTS = 2  # supports per class up to which "auto" is "prototype"
_MOST_GROUPS, _PARTS = 100, 20  # left out one by one, at most, and parts of a larger number
_LEFT_OUT = 200  # supports that are left out in turn, at most
_ADAPTED_ROWS = 100_000  # rows in all steps of all tasks whose heads are trained to leave one out
_GATHERED_NUMBERS = 1 << 24  # features of the tasks scored at once: 64 to 128 MiB


def fit_model(
    supports: Supports,
    *,
    heads: Heads | None = None,
    calibration: Calibration | None = None,
    random: RandomState,
    rule: str = "prototype",
    rule_options: Mapping[str, Any] | None = None,
    adapt_steps: int = 0,
    temperature: float | str = AUTO,
    reject_below: float | str | None = None,
) -> Model:
    """Fit a model to supports, any number per class.

    Parameters
    ----------
    supports
        Labelled embeddings.
    heads, calibration
        Of the encoder; None without one, or if the run was not calibrated.
    random
        Chooses the supports to leave out if there are more than 200.
    rule, rule_options, adapt_steps, temperature, reject_below
        As in `FewShotClassifier`.

    Raises
    ------
    InputError
        If an argument is not allowed, or there is no data for an automatic threshold.
    """
    _check_temperature(temperature)
    _check_rejection(reject_below, supports.labels)
    if rule == AUTO:
        rule = choose_rule(supports, heads, rule_options, adapt_steps)
    name, options = resolve_rule(rule, rule_options, adapt_steps, heads)
    model = build_model(supports, name, options, heads)
    if name == "adapt" and heads is not None:
        features = supports.embeddings.features
        model.adapted = adapt_heads(features, model.targets, heads, options["steps"])
    model.fit()
    held_out = _NOTHING_HELD_OUT
    if AUTO in (temperature, reject_below):
        held_out = _leave_one_out(model, name, options, random)
    # The calibration is that of the encoder's own heads, and its temperature that of cosines.
    if isinstance(temperature, str):
        usable = calibration if name == "prototype" else None
        model.temperature = _fitted_temperature(model, held_out, usable)
    else:
        model.temperature = float(temperature)
    if isinstance(reject_below, str):
        usable = calibration if model.adapted is None else None
        similarity = None if usable is None else usable.similarity_for(len(model.classes))
        model.threshold = rejection_threshold(held_out.similarity, similarity)
        model.rejects_by_similarity = True
    elif reject_below is not None:
        model.threshold = float(reject_below)
    return model


def build_model(
    supports: Supports, name: str, options: Mapping[str, Any], heads: Heads | None
) -> Model:
    """Return a model with a resolved rule, before anything is adapted or calibrated."""
    model = Model(supports, RULES[name](**options), heads, rule_name=name)
    if name in ("prototype", "adapt"):  # adapted heads are applied before the rule
        model.rule = model.centre_rule
    return model


def choose_rule(
    supports: Supports,
    heads: Heads | None,
    options: Mapping[str, Any] | None = None,
    adapt_steps: int = 0,
) -> str:
    """Return the rule that classifies most supports correctly by the others.

    With at most two supports per class on average, and with steps of adaptation, it is
    ``prototype``. Otherwise ``ridge`` or ``logistic`` is taken if it is strictly better.

    Raises
    ------
    InputError
        If there are options, which belong to one rule.
    """
    if options:
        raise InputError(
            f"rule 'auto' takes no options, got {', '.join(options)}; choose a rule such as 'ridge'"
        )
    classes = len(np.unique(supports.labels))
    if adapt_steps or len(supports.labels) <= _FEW_SHOTS * classes:
        return "prototype"
    return max(
        AUTO_RULES, key=lambda name: left_out_accuracy(supports, name, heads).accuracy
    )  # the first of equals


def left_out_accuracy(
    supports: Supports,
    rule: str,
    heads: Heads | None,
    groups: Sequence[object] | None = None,
    options: Mapping[str, Any] | None = None,
) -> LeftOut:
    """Classify each support by those of other groups.

    Parameters
    ----------
    supports, rule, heads
        The labelled embeddings, a rule by name, and the heads of the encoder if there is one.
    groups
        (S,) frames of one video, pictures of one patient and the like have equal values, and are
        left out together. By default every support is a group. More than 100 groups are left out
        in 20 parts.
    options
        Of the rule.
    """
    model = build_model(supports, rule, RULES.options(rule, dict(options or {})), heads)
    numbers = np.unique(
        np.arange(len(supports.labels)) if groups is None else np.asarray(groups),
        return_inverse=True,
    )[1]
    if (count := numbers.max() + 1) > _MOST_GROUPS:
        numbers = (RandomState(0).permutation(count) % _PARTS)[numbers]
    correct = total = 0
    for group in np.unique(numbers):
        out = torch.from_numpy(np.flatnonzero(numbers == group))
        rest = torch.from_numpy(np.flatnonzero(numbers != group))
        present = torch.unique(model.targets[rest])
        out = out[torch.isin(model.targets[out], present)]  # of classes that others still have
        if not len(out) or len(present) < 2:
            continue
        labels = torch.searchsorted(present, model.targets[rest])
        others = SupportSet(model.prepared[rest[None]], labels[None], len(present), heads)
        scores = model.rule(others, model.prepared[out[None]]).detach()[0]  # (o, N)
        correct += int((present[scores.argmax(dim=1)] == model.targets[out]).sum())
        total += len(out)
    return LeftOut(correct, total)


class LeftOut(NamedTuple):
    """How many of the supports that could be left out were classified correctly."""

    correct: int
    total: int

    @property
    def accuracy(self) -> float:
        """The fraction in [0, 1]; 0 if none could be left out."""
        return self.correct / max(1, self.total)

    @property
    def interval(self) -> tuple[float, float]:
        """Wilson's 95 % interval of the accuracy; (0, 1) if none could be left out."""
        if not self.total:
            return 0.0, 1.0
        z, n, p = 1.96, self.total, self.accuracy
        centre, half = p + z**2 / (2 * n), z * math.sqrt(p * (1 - p) / n + z**2 / (4 * n**2))
        return (centre - half) / (1 + z**2 / n), (centre + half) / (1 + z**2 / n)


def resolve_rule(
    rule: str, options: Mapping[str, Any] | None, adapt_steps: int, heads: Heads | None
) -> tuple[str, dict[str, Any]]:
    """Return the name of a rule and all its options.

    Raises
    ------
    InputError
        If there is no such rule or option, or a classifier cannot use the rule.
    """
    name, given = resolve_adaptation(rule, options, adapt_steps)
    if heads is None and name == "adapt":
        raise InputError(
            "rule 'adapt' has no heads to adapt: features without an encoder have none; "
            "use another rule, such as 'prototype'"
        )
    resolved = RULES.options(name, given)
    if getattr(RULES[name](**resolved), "needs_pixels", False):
        raise InputError(
            f"rule {name!r} trains a whole network for every task and works with psco evaluate "
            f"only; use another rule, such as 'prototype'"
        )
    return name, resolved


class _HeldOut(NamedTuple):
    scores: np.ndarray  # (L, N)
    similarity: np.ndarray  # (L,)
    truth: np.ndarray  # (L,)


_NOTHING_HELD_OUT = _HeldOut(np.empty((0, 0)), np.empty(0), np.empty(0, dtype=np.int64))


def _leave_one_out(
    model: Model, name: str, options: Mapping[str, Any], random: RandomState
) -> _HeldOut:
    """Score supports by the others, for classes with at least two supports."""
    supports, centre_rule = model.prepared, model.centre_rule
    rule, heads, limit = model.rule, model.heads, _LEFT_OUT
    if model.adapted is not None:
        # Heads that were trained on a support score it too well: train them anew without it.
        supports = model.supports.embeddings
        rule = centre_rule = RULES[name](**options)
        rows = len(supports) * max(1, options["steps"])
        limit = max(2, min(limit, _ADAPTED_ROWS // rows)) if len(supports) > 2 else 0
    chosen = _choose_left_out(model.targets, limit, random)
    everyone = torch.arange(len(supports))
    at_once = max(1, _GATHERED_NUMBERS // max(1, supports.features.numel()))
    parts = [_NOTHING_HELD_OUT._replace(scores=np.empty((0, len(model.classes))))]
    for begin in range(0, len(chosen), at_once):
        out = torch.from_numpy(chosen[begin : begin + at_once])  # (l,)
        rest = torch.stack([everyone[everyone != index] for index in out])  # (l, S - 1)
        others = SupportSet(supports[rest], model.targets[rest], len(model.classes), heads, begin)
        query = supports[out[:, None]]  # (l, 1)
        scores = rule(others, query).detach()[:, 0].double()  # (l, N)
        centres = scores
        if centre_rule != rule:
            centres = centre_rule(others, query).detach()[:, 0].double()
        similarity = centres.max(dim=1).values
        truth = model.targets[out]
        parts.append(_HeldOut(scores.numpy(), similarity.numpy(), truth.numpy()))
    return _HeldOut(*(np.concatenate(column) for column in zip(*parts, strict=True)))


def _choose_left_out(targets: Tensor, limit: int, random: RandomState) -> np.ndarray:
    counts = torch.bincount(targets)
    several = (counts[targets] > 1).nonzero()[:, 0].numpy()
    if len(several) > limit:
        several = np.sort(random.choice(several, limit, replace=False))
    return several


def _fitted_temperature(model: Model, held_out: _HeldOut, calibration: Calibration | None) -> float:
    if calibration is not None:
        expected = calibration.temperature_for(len(model.classes))
    else:
        own = model.scores(model.supports.embeddings)
        expected = default_temperature(own, model.targets.numpy())
    return fit_temperature(held_out.scores, held_out.truth, expected)


def _check_temperature(temperature: float | str) -> None:
    if temperature != AUTO and not (_is_number(temperature) and 0 < temperature < np.inf):
        raise InputError(f"temperature must be 'auto' or a number > 0, not {temperature!r}")


def _check_rejection(reject_below: float | str | None, labels: np.ndarray) -> None:
    if reject_below is None:
        return
    if reject_below != AUTO and not (_is_number(reject_below) and 0 <= reject_below <= 1):
        raise InputError(
            f"reject_below must be None, 'auto' or a probability in [0, 1], not {reject_below!r}"
        )
    if UNKNOWN in labels.tolist():
        raise InputError(
            f"a class is called {UNKNOWN!r}, which marks rejected images; rename the class"
        )


def _is_number(value: object) -> TypeGuard[float]:
    return isinstance(value, (int, float, np.integer, np.floating)) and not isinstance(value, bool)
