"""Prototypes for few shots, regression on the features of two blocks for more.

One shot says where a class is, not how far it extends: prototypes are as good as it gets. From a
few shots on, a regression can weigh features, and the block before the last has more of them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

from torch import Tensor

from psco.errors import InputError
from psco.evaluation.rules.prototype import Prototype
from psco.evaluation.rules.regression import Logistic, Ridge
from psco.evaluation.rules.rule import Embeddings, Scorer, SupportSet, fit_rule

FeatureNames = Literal["last", "last+previous"]


@dataclass(frozen=True)
class ReadOut:
    """The rule `Prototype` below ``from_shots`` shots a class, a regression from there on.

    Parameters
    ----------
    regression
        ``logistic`` or ``ridge``, with their default penalties.
    features
        What the regression reads: ``last``, the features of the backbone, or ``last+previous``,
        these and the output of the block before the last, each of unit length. The block before
        the last of Conv5 is the last of Conv4, with 1600 features at 84 px.
    from_shots
        Mean number of supports of a class from which the regression is used, at least 1.
    """

    regression: Literal["logistic", "ridge"] = "logistic"
    features: FeatureNames = "last+previous"
    from_shots: int = 5
    transductive: ClassVar[bool] = False

    def __post_init__(self) -> None:
        if self.regression not in ("logistic", "ridge"):
            raise InputError(f"regression must be logistic or ridge, got {self.regression!r}")
        if self.features not in ("last", "last+previous"):
            raise InputError(f"features must be last or last+previous, got {self.features!r}")
        if self.from_shots < 1:
            raise InputError(f"from_shots must be at least 1, got {self.from_shots}")

    @property
    def needs_previous(self) -> bool:
        """Whether features must be those of the last two blocks, see `Encoder.embed_batch`."""
        return self.features == "last+previous"

    def __call__(self, support: SupportSet, query: Embeddings) -> Tensor:
        """Return the scores (T, Q, N) of the rule that suits the number of shots."""
        return self.fit(support)(query)

    def fit(self, support: SupportSet) -> Scorer:
        """Fit the rule that suits the number of shots."""
        if support.labels.shape[1] < self.from_shots * support.ways:
            return fit_rule(Prototype(), support)
        return (Ridge() if self.regression == "ridge" else Logistic()).fit(support)
