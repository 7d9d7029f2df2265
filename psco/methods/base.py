"""What a training method is: the contract of PsCo and of its rivals."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from psco.errors import InputError
from psco.methods.stages import Artefact, Stage
from psco.networks.networks import Networks
from psco.ops.ranks import gather
from psco.registry import Registry

Kind = Literal["unsupervised", "self-supervised", "supervised", "baseline"]
Logs = dict[str, Tensor]


class Batch(NamedTuple):
    """What a method may need to compute its loss."""

    view_a: Tensor  # (B, C, H, W); ((V - 1) B, C, H, W) if an image has V > 2 views, see TwoViews
    view_b: Tensor  # (B, C, H, W), of the same images; view_a again for methods with one view
    labels: Tensor | None = None  # (B,) int64: for supervised methods, and for diagnostics
    progress: float = 0.0  # fraction of the run that is over, in [0, 1]
    starts_step: bool = True  # False for all but the first of the mini-batches of one step


@dataclass(frozen=True)
class Episode:
    """The few-shot tasks that a training step is made of.

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
            require(getattr(self, name) >= 1, f"{name} must be at least 1, got {vars(self)[name]}")
        require(self.ways >= 2, f"ways must be at least 2, got {self.ways}")

    @property
    def images(self) -> int:
        """Images in a step."""
        return self.tasks * self.ways * (self.shots + self.queries)

    def split(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Split (T·N·(K + Q), ...) into supports (T, N, K, ...) and queries (T, N, Q, ...)."""
        x = x.reshape(self.tasks, self.ways, self.shots + self.queries, *x.shape[1:])
        return x[:, :, : self.shots], x[:, :, self.shots :]


class Method(Networks):
    """The networks f, g and h with a loss. All else about training is the same for all methods.

    A method calls this constructor, overrides `loss`, and describes itself in class attributes.
    Parameters of its constructor with a default are its options in recipes.

    Parameters
    ----------
    networks
        f, g and h; a method that does not use the heads passes on `without_heads`.

    Attributes
    ----------
    title, paper, summary
        Name for tables, where it was published, and what it does in one line.
    kind
        Whether it learns without labels (``unsupervised`` meta-learning or ``self-supervised``),
        from labels (``supervised``), or not at all (``baseline``).
    rule, transfer_rule
        The rules that the paper's tables classify with, on classes of the same data set and on
        other data sets.
    settings
        What the method changes in every recipe, such as ``{"heads": {"predictor": False}}``.
    protocol
        Whether a prediction depends on the other queries.
    views
        Views of an image that the loss reads, 2 or 1.
    takes_more_views
        Whether the loss can read several draws of view_a, see `TwoViews`.
    training_only
        Prefixes of the names of tensors that classification does not need.
    has_features
        Whether its features mean something before it has adapted to a task.
    distributes
        Whether several processes can share a batch.
    needs_weights
        Whether the backbone must start with given weights rather than random ones.
    episode
        The tasks that a step is made of; None for a batch of images drawn from the whole set.
    images_are_classes
        Whether every image is a class of its own. The batch then has one image for each class of
        the tasks, (T·N, C, H, W), and the method makes the others from it.
    """

    title: ClassVar[str]
    paper: ClassVar[str] = ""
    summary: ClassVar[str] = ""
    kind: ClassVar[Kind] = "self-supervised"
    rule: ClassVar[str] = "knn"
    transfer_rule: ClassVar[str] = "linear"
    settings: ClassVar[dict[str, Any]] = {}
    protocol: ClassVar[str] = "inductive"
    views: ClassVar[Literal[1, 2]] = 2
    takes_more_views: ClassVar[bool] = False
    training_only: ClassVar[tuple[str, ...]] = ("ema.", "queue")
    has_features: ClassVar[bool] = True
    distributes: ClassVar[bool] = True
    needs_weights: ClassVar[bool] = False
    images_are_classes: ClassVar[bool] = False
    episode: Episode | None = None

    def __init__(self, networks: Networks) -> None:
        f, g, h = networks.backbone, networks.projector, networks.predictor
        super().__init__(f, g, h, networks._width, networks._dim, networks._image)

    @property
    def most_ways(self) -> float:
        """The largest number of classes in a task that the method can answer."""
        return math.inf

    def set_batch_size(self, batch_size: int) -> None:
        """Choose how many tasks or ways make a step of about ``batch_size`` images."""

    def set_classes(self, classes: int) -> None:
        """Make the layers that depend on the number of training classes, before the first step."""

    def stages(self) -> Sequence[Stage]:
        """Return the work to do before the first step; see ``psco.methods.stages``."""
        return ()

    def use_artefact(self, name: str, artefact: Artefact) -> None:
        """Take over the result of the stage ``name``, whether it has just run or been loaded."""

    def labellings(self) -> np.ndarray | None:
        """Return labels (P, n) that the method has found for the training images.

        Tasks are drawn from them; None for the labels of the data set.
        """
        return None

    def loss(self, batch: Batch) -> tuple[Tensor, Logs]:
        """Return the loss of a mini-batch, a scalar, and further scalars to log.

        In training mode a call may move EMA copies and queues; in evaluation mode nothing changes.
        """
        raise NotImplementedError

    def rule_options(self) -> dict[str, Any]:
        """Return the options of `rule` that follow from how the method was trained."""
        return {}

    def query_head(self, features: Tensor) -> Tensor:
        """Return query representations (B, d) of unit length for features (B, width)."""
        return F.normalize(features, dim=1)

    def support_head(self, features: Tensor) -> Tensor:
        """Return support representations (B, d) of unit length for features (B, width)."""
        return F.normalize(features, dim=1)

    def embed_query(self, x: Tensor) -> Tensor:
        """Return the query representations (B, d) of images (B, C, H, W)."""
        return self.query_head(self.backbone(x))

    def embed_support(self, x: Tensor) -> Tensor:
        """Return the support representations (B, d) of images (B, C, H, W)."""
        return self.support_head(self.backbone(x))


# How meta-learning methods are trained as published: plain images, Adam at a rate of 0.001.
EPISODIC_SETTINGS: dict[str, dict[str, Any]] = {
    "views": {"view_a": {}, "view_b": {}},
    "train": {
        "optimizer": "adam",
        "learning_rate": 0.001,
        "weight_decay": 0.0,
        "warmup_steps": 0,
        "warmup": 0.0,
        "decay": "constant",
        "freeze": None,
    },
}
METHODS: Registry[type[Method]] = Registry("method", plugins="psco.methods")


@torch.no_grad()
def embedding_std(q: Tensor) -> Tensor:
    """Return how widely representations (N, d) of unit length are spread over the sphere.

    The standard deviation over the batch of all processes, averaged over the coordinates, times √d:
    about 1 for directions that are uniform on the sphere, 0 if all have collapsed to one point.
    """
    q = gather(q.float())
    return q.std(dim=0, correction=0).mean() * math.sqrt(q.shape[1])


def query_both(networks: Networks, batch: Batch, joint_batchnorm: bool) -> tuple[Tensor, Tensor]:
    """Return Normalize(h∘g∘f) of both views, 2 x (N, d), from one pass or from one pass each."""
    if joint_batchnorm:
        z_a, z_b = networks.query(torch.cat([batch.view_a, batch.view_b])).chunk(2)
        return z_a, z_b
    return networks.query(batch.view_a), networks.query(batch.view_b)


def require(condition: bool, message: str) -> None:
    """Raise InputError with a message unless a condition holds."""
    if not condition:
        raise InputError(message)


def require_positive(**options: float) -> None:
    """Raise InputError unless all options are > 0."""
    for name, value in options.items():
        require(value > 0, f"{name} must be > 0, got {value}")


def require_momentum(start: float, end: float | None = None) -> None:
    """Raise InputError unless the momentum of an EMA copy is in [0, 1] throughout."""
    require(0 <= start <= 1, f"momentum must be between 0 and 1, got {start}")
    allowed = end is None or 0 <= end <= 1
    require(allowed, f"momentum_end must be between 0 and 1 or null, got {end}")
