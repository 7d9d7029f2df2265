"""How often an automatic threshold will reject, estimated from the supports."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
from numpy.random import RandomState

from psco.classifier.confidence import FALSE_REJECTION_RATE
from psco.classifier.left_out import LeftOut, leave_one_out
from psco.classifier.metrics import auroc
from psco.classifier.model import Model
from psco.evaluation.rules import RULES

_USEFUL = 0.5  # fraction of foreign images that a threshold should reject


class RejectionRates(NamedTuple):
    """What an automatic threshold does with supports that are left out.

    Parameters
    ----------
    genuine
        Supports that are left out one by one, and how many of them are accepted.
    foreign
        Supports whose whole class is left out, and how many of them are rejected.
    separation
        Probability that a genuine image is more similar to its nearest class than a foreign one
        (AUROC); NaN without left-out supports.
    """

    genuine: LeftOut
    foreign: LeftOut
    separation: float

    @property
    def warning(self) -> str | None:
        """What to warn about: images of other classes that look like those of the classifier."""
        if self.foreign.accuracy >= _USEFUL:
            return None
        return (
            f"the threshold hardly tells own images from foreign ones: it rejects "
            f"{self.foreign.accuracy:.0%} of the supports when their class is left out; add shots, "
            f"or use another encoder"
        )

    def lines(self) -> list[str]:
        """Return the rates as lines of text."""
        own = f"about {FALSE_REJECTION_RATE:.0%}, not measured: no support can be left out"
        if self.genuine.total:
            low, high = (1 - bound for bound in reversed(self.genuine.interval))
            own = f"{1 - self.genuine.accuracy:.1%} (95 % interval {low:.1%} to {high:.1%})"
        low, high = self.foreign.interval
        foreign = f"{self.foreign.accuracy:.1%} (95 % interval {low:.1%} to {high:.1%})"
        return [f"rejected of own images: {own}", f"rejected of foreign images: {foreign}"]

    def as_dict(self) -> dict[str, float | None]:
        """Return the rates in [0, 1], for JSON; None if not measured."""
        return {
            "genuine": 1 - self.genuine.accuracy if self.genuine.total else None,
            "foreign": self.foreign.accuracy,
            "separation": None if np.isnan(self.separation) else self.separation,
        }


def rejection_rates(
    model: Model, options: Mapping[str, Any] | None = None, seed: int = 0
) -> RejectionRates | None:
    """Estimate what the threshold of a model will reject, from its supports.

    The centres of the other classes do not depend on a class that is left out, so no model is
    fitted again for the foreign images. Real foreign images may be closer to the classes, or
    further away, than the classes are to one another.

    Parameters
    ----------
    model
        The fitted model.
    options
        Options of its rule.
    seed
        Chooses the supports that are left out if there are more than 200.

    Returns
    -------
    RejectionRates or None
        None if the threshold is not an automatic one.
    """
    if model.threshold is None or not model.rejects_by_similarity:
        return None
    resolved = RULES.options(model.rule_name, dict(options or {}))
    own = leave_one_out(model, model.rule_name, resolved, RandomState(seed)).similarity
    scores = model.centre_scores(model.supports.embeddings)
    scores[np.arange(len(scores)), model.targets.numpy()] = -np.inf
    foreign = scores.max(axis=1)  # (S,) to the nearest other class
    return RejectionRates(
        LeftOut(int((own >= model.threshold).sum()), len(own)),
        LeftOut(int((foreign < model.threshold).sum()), len(foreign)),
        auroc(own, foreign) if len(own) else float("nan"),
    )
