"""The contract of a classification rule: few-shot tasks in, scores of queries out."""

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

    The leading axes are the caller's: (n,) for the images of a set, (T, S) for those of T tasks.

    Parameters
    ----------
    features
        (..., width) features of the backbone f, not normalised.
    support, query
        (..., d) of unit length: Normalize(g∘f), used for supports, and Normalize(h∘g∘f), used for
        queries.
    """

    features: Tensor
    support: Tensor
    query: Tensor

    def __len__(self) -> int:
        return len(self.features)

    def __getitem__(self, index: Tensor) -> Embeddings:
        """Return the embeddings at ``index``, of any shape, along the first axis."""
        return Embeddings(self.features[index], self.support[index], self.query[index])


def join_embeddings(batches: list[Embeddings]) -> Embeddings:
    """Concatenate the embeddings of several batches."""
    return Embeddings(
        torch.cat([batch.features for batch in batches]),
        torch.cat([batch.support for batch in batches]),
        torch.cat([batch.query for batch in batches]),
    )


@dataclass(frozen=True)
class Heads:
    """The heads of a trained network, for rules that train them further.

    Parameters
    ----------
    projector, predictor
        g and h; the predictor may be `torch.nn.Identity`.
    temperature
        τ_PsCo.
    network, image_shape
        The whole method and the shape (C, H, W) of its images, for rules that train the backbone.
    """

    projector: nn.Module
    predictor: nn.Module
    temperature: float = 1.0
    network: Method | None = None
    image_shape: tuple[int, int, int] = (0, 0, 0)


@dataclass(frozen=True)
class SupportSet:
    """The labelled supports of T tasks of N ways.

    Parameters
    ----------
    embeddings, labels
        (T, S) supports and their classes, int64 in 0..N−1; every class occurs, equally often or
        not.
    ways
        N.
    heads
        Heads of the network that embedded the images; None for features without a network.
    first
        Number of the first task. Rules that draw random numbers seed them with the number of the
        task, so that the result does not depend on how tasks are batched.
    """

    embeddings: Embeddings
    labels: Tensor
    ways: int
    heads: Heads | None = None
    first: int = 0


class Rule(Protocol):
    """A way to classify queries, for many tasks at once.

    A rule is a frozen dataclass whose fields, all with defaults, are its options. Its class may
    define more attributes: ``needs_pixels = True`` if it trains the whole network on images;
    ``needs_method``, the name of the only method whose networks it can read; ``needs_previous =
    True`` if its features are those of the last two blocks; and
    ``tasks_at_once``, the largest batch of a slow rule, after which progress is shown.
    """

    @property
    def transductive(self) -> bool:
        """Whether the scores of a query depend on the other queries of its task."""

    def __call__(self, support: SupportSet, query: Embeddings) -> Tensor:
        """Return the scores (T, Q, N) of queries (T, Q).

        The class with the largest score is predicted, the lowest class among equals.
        """
        ...


Scorer: TypeAlias = Callable[[Embeddings], Tensor]  # queries (T, Q) -> scores (T, Q, N)


@runtime_checkable
class FittableRule(Protocol):
    """A rule that trains on the supports first and then scores any number of queries."""

    def fit(self, support: SupportSet) -> Scorer:
        """Train on the supports and return the function that scores queries; see `Rule`."""
        ...


def fit_rule(rule: Rule, support: SupportSet) -> Scorer:
    """Return a function that scores queries by the given supports.

    A `FittableRule` is trained here, once. Any other rule is called for each batch of queries.
    """
    if isinstance(rule, FittableRule):
        return rule.fit(support)
    return partial(rule, support)
