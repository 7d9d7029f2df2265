"""What a classification rule is: from a few labelled points to scores for others."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Protocol, TypeAlias, runtime_checkable

import torch
from torch import Tensor, nn

from psco.methods import Method


@dataclass(frozen=True)
class Embeddings:
    """Images as a rule sees them: embedded once, before any task is drawn.

    The first axes are whatever the caller has: (n,) images of a set, or (T, S) of many tasks.

    Parameters
    ----------
    features
        (..., width) features of the backbone f, not normalised.
    support, query
        (..., d) of unit length: representations as supports, g∘f, and as queries, h∘g∘f.
    """

    features: Tensor
    support: Tensor
    query: Tensor

    def __len__(self) -> int:
        return len(self.features)

    def __getitem__(self, index: Tensor) -> Embeddings:
        """Gather points along the first axis; ``index`` may have any shape."""
        return Embeddings(self.features[index], self.support[index], self.query[index])


def join_embeddings(parts: list[Embeddings]) -> Embeddings:
    """Put points (n,) of several batches one after the other."""
    return Embeddings(
        torch.cat([part.features for part in parts]),
        torch.cat([part.support for part in parts]),
        torch.cat([part.query for part in parts]),
    )


@dataclass(frozen=True)
class Heads:
    """The heads of a trained network, for rules that go on training them.

    Parameters
    ----------
    projector, predictor
        g and h; the predictor may be `torch.nn.Identity`.
    temperature
        τ_PsCo.
    network, image_shape
        The whole method and (C, H, W) of its images, for rules that train more than heads.
    """

    projector: nn.Module
    predictor: nn.Module
    temperature: float = 1.0
    network: Method | None = None
    image_shape: tuple[int, int, int] = (0, 0, 0)


class Rule(Protocol):
    """Scores the queries of many tasks at once.

    A rule is a frozen dataclass; its fields with defaults are its options. Two attributes of its
    class are optional: ``needs_pixels`` of rules that train whole networks, and ``tasks_at_once``
    of slow ones, after so many of which they report progress.
    """

    @property
    def transductive(self) -> bool:
        """Whether the scores of a query depend on the other queries of its task."""

    def __call__(
        self, support: Embeddings, labels: Tensor, query: Embeddings, ways: int, heads: Heads | None
    ) -> Tensor:
        """Score queries.

        Parameters
        ----------
        support
            Embeddings (T, S) with a label each.
        labels
            (T, S) int64 in 0..ways−1; every class occurs, in any number.
        query
            Embeddings (T, Q).
        ways
            Number of classes N.
        heads
            Of the network that made the points; None if there are none (bare features).

        Returns
        -------
        Tensor
            (T, Q, N); the predicted class is the one with the largest score, the lowest of equals.
        """
        ...


Scorer: TypeAlias = Callable[[Embeddings], Tensor]  # queries (T, Q) -> scores (T, Q, N)


@runtime_checkable
class FittableRule(Protocol):
    """A rule that trains on the supports first and then scores any number of queries."""

    def fit(self, support: Embeddings, labels: Tensor, ways: int) -> Scorer:
        """Train on supports (T, S) and return the function that scores queries; see `Rule`."""
        ...


def fit_rule(
    rule: Rule, support: Embeddings, labels: Tensor, ways: int, heads: Heads | None
) -> Scorer:
    """Return a function that scores queries by given supports; parameters as in `Rule`.

    A `FittableRule` is trained here, once. Any other rule is called anew for each batch of queries.
    """
    if isinstance(rule, FittableRule):
        return rule.fit(support, labels, ways)
    return partial(_call, rule, support, labels, ways, heads)


def _call(
    rule: Rule,
    support: Embeddings,
    labels: Tensor,
    ways: int,
    heads: Heads | None,
    query: Embeddings,
) -> Tensor:
    return rule(support, labels, query, ways, heads)
