"""From supports to a model: resolve the rule, then fit the temperature and the threshold."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeGuard

import numpy as np
from numpy.random import RandomState

from psco.classifier.calibration import Calibration
from psco.classifier.confidence import default_temperature, fit_temperature, rejection_threshold
from psco.classifier.left_out import NOTHING_HELD_OUT, HeldOut, leave_one_out, left_out_accuracy
from psco.classifier.model import UNKNOWN, Model, Supports, build_model
from psco.errors import InputError
from psco.evaluation.rules import RULES, Heads
from psco.evaluation.rules.prototype import adapt_heads, resolve_adaptation

AUTO = "auto"
AUTO_RULES = ("prototype", "ridge", "logistic")
_FEW_SHOTS = 2  # supports per class up to which "auto" is "prototype"


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
    held_out = NOTHING_HELD_OUT
    if AUTO in (temperature, reject_below):
        held_out = leave_one_out(model, name, options, random)
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
    chosen = RULES[name](**resolved)
    if getattr(chosen, "needs_previous", False):
        raise InputError(
            f"rule {name!r} with features=last+previous works with psco evaluate only; "
            f"use features=last"
        )
    if getattr(chosen, "needs_pixels", False):
        raise InputError(
            f"rule {name!r} trains a whole network for every task and works with psco evaluate "
            f"only; use another rule, such as 'prototype'"
        )
    return name, resolved


def _fitted_temperature(model: Model, held_out: HeldOut, calibration: Calibration | None) -> float:
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
