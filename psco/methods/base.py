"""What a training method is: the base of PsCo and of its rivals."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from psco.errors import InputError
from psco.ops.ranks import gather

Kind = Literal["unsupervised", "self-supervised", "supervised", "floor"]


@dataclass(frozen=True)
class Episode:
    """The shape of a training step that is made of few-shot tasks.

    Parameters
    ----------
    ways, shots, queries
        N, K and Q of a task.
    tasks
        Tasks in a step.
    """

    ways: int
    shots: int
    queries: int
    tasks: int = 1

    def __post_init__(self) -> None:
        for name in ("ways", "shots", "queries", "tasks"):
            require(getattr(self, name) >= 1, f"{name} must be at least 1, not {vars(self)[name]}")
        require(self.ways >= 2, f"ways must be at least 2, not {self.ways}")

    @property
    def images(self) -> int:
        """Images in a step."""
        return self.tasks * self.ways * (self.shots + self.queries)

    def split(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Cut (T·N·(K + Q), ...) into supports (T, N, K, ...) and queries (T, N, Q, ...)."""
        x = x.reshape(self.tasks, self.ways, self.shots + self.queries, *x.shape[1:])
        return x[:, :, : self.shots], x[:, :, self.shots :]


class Method(nn.Module):
    """Networks and a loss; everything else about training is the same for all methods.

    A method calls this constructor, overrides `loss`, and says in class attributes what it is.

    Parameters
    ----------
    backbone
        f, maps images to (B, width).
    projector, predictor
        g and h; None if the method has none.

    Attributes
    ----------
    title, paper, summary
        Name for tables, where it was published, and what it does in one line.
    kind
        Whether it learns without labels (``unsupervised`` meta-learning or ``self-supervised``),
        from labels (``supervised``), or not at all (``floor``).
    rule, transfer_rule
        The rules that the paper's tables classify with, on classes of the same data set and on
        other data sets.
    protocol
        Whether a prediction depends on the other queries.
    views
        Views of an image that the loss reads, 2 or 1; with one, ``view_b`` is ``view_a``.
    training_only
        Beginnings of the names of tensors that no classification needs.
    embeds
        Whether its features mean something without a task to adapt to.
    shares
        Whether several processes can share a batch of it.
    episode
        The tasks that a step is made of; None for a batch of images drawn from the whole set.
    done
        Share of the run that is over, in [0, 1]; whoever trains sets it before every step.
    """

    title: ClassVar[str]
    paper: ClassVar[str] = ""
    summary: ClassVar[str] = ""
    kind: ClassVar[Kind] = "self-supervised"
    rule: ClassVar[str] = "knn"
    transfer_rule: ClassVar[str] = "linear"
    protocol: ClassVar[str] = "inductive"
    views: ClassVar[Literal[1, 2]] = 2
    training_only: ClassVar[tuple[str, ...]] = ("momentum_", "queue")
    embeds: ClassVar[bool] = True
    shares: ClassVar[bool] = True
    episode: Episode | None = None
    done: float = 0.0

    def __init__(
        self,
        backbone: nn.Module,
        projector: nn.Module | None = None,
        predictor: nn.Module | None = None,
    ) -> None:
        super().__init__()
        self.backbone = backbone
        self.projector = nn.Identity() if projector is None else projector
        self.predictor = nn.Identity() if predictor is None else predictor

    @property
    def most_ways(self) -> float:
        """The largest number of classes in a task that the method can answer."""
        return math.inf

    def fill(self, batch_size: int) -> None:
        """Settle how many tasks or ways make a step of about ``batch_size`` images."""

    def start(self, classes: int) -> None:
        """Make what depends on the number of labelled classes, before the first step."""

    def loss(
        self, view_a: Tensor, view_b: Tensor, labels: Tensor | None = None, update: bool = True
    ) -> dict[str, Tensor]:
        """Give the loss of a mini-batch.

        Parameters
        ----------
        view_a, view_b
            (B, C, H, W) views of the same images.
        labels
            (B,) int64 classes: for diagnostics, and for supervised methods.
        update
            Whether this is the first mini-batch of a step: moving averages move once a step.

        Returns
        -------
        dict
            Scalars; ``total`` is the one to minimise, the others are logged: `spread`, for one.
        """
        raise NotImplementedError

    def rule_options(self) -> dict[str, Any]:
        """Give the options of `rule` that follow from how the method was trained."""
        return {}

    def query_head(self, features: Tensor) -> Tensor:
        """Turn features (B, width) into query representations of unit length."""
        return F.normalize(features, dim=1)

    def support_head(self, features: Tensor) -> Tensor:
        """Turn features (B, width) into support representations of unit length."""
        return F.normalize(features, dim=1)

    def embed_query(self, x: Tensor) -> Tensor:
        """Give the query representations (B, d) of images (B, C, H, W)."""
        return self.query_head(self.backbone(x))

    def embed_support(self, x: Tensor) -> Tensor:
        """Give the support representations (B, d) of images (B, C, H, W)."""
        return self.support_head(self.backbone(x))


@torch.no_grad()
def spread(q: Tensor) -> Tensor:
    """Tell how far representations (N, d) of unit length, of all ranks, are spread over the sphere.

    The standard deviation over the batch, averaged over the coordinates and times √d: about 1 when
    they point everywhere alike, 0 when they have collapsed to one point.
    """
    q = gather(q.float())
    return q.std(dim=0, correction=0).mean() * math.sqrt(q.shape[1])


def require(condition: bool, message: str) -> None:
    """Raise InputError with a message unless a condition holds."""
    if not condition:
        raise InputError(message)


def require_momentum(start: float, end: float | None) -> None:
    """Raise InputError unless the momentum of a moving average is in [0, 1] throughout."""
    require(0 <= start <= 1, f"momentum must be between 0 and 1, not {start}")
    allowed = end is None or 0 <= end <= 1
    require(allowed, f"momentum_end must be between 0 and 1 or null, not {end}")


def output_dim(projector: nn.Module) -> int:
    """Read d, the width of a projector's output, off its last layer.

    Raises
    ------
    InputError
        If no layer tells.
    """
    for layer in reversed(list(projector.modules())):
        for name in ("out_features", "num_features"):
            if isinstance(width := getattr(layer, name, None), int):
                return width
    raise InputError(f"the width of the projector {type(projector).__name__} is unknown: give dim")


def input_dim(projector: nn.Module) -> int:
    """Read the width of the backbone's features off a projector's first linear layer."""
    return next(layer.in_features for layer in projector.modules() if isinstance(layer, nn.Linear))
