"""From supports to a model: resolve the rule, then fit the temperature and the threshold."""

from __future__ import annotations

from collections.abc import Mapping
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
    model = Model(supports, RULES[name](**options), heads)
    if name in ("prototype", "adapt"):  # adapted heads are applied before the rule
        model.rule = model.centre_rule
    return model


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
