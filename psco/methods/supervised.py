"""Supervised transfer: a classifier of the training classes lends its backbone."""

from __future__ import annotations

import torch.nn.functional as F
from torch import Tensor, nn

from psco.methods.base import Method, input_dim, spread


class Supervised(Method):
    """Cross-entropy over all training classes; a linear probe on the features tells new ones.

    Parameters
    ----------
    backbone, projector, predictor
        f; the heads are not used.
    """

    title, kind, rule, views = "Supervised transfer", "supervised", "linear", 1
    summary = "learns to name the training classes; a linear probe on its features tells new ones"
    training_only = ("classifier",)

    def __init__(
        self,
        backbone: nn.Module,
        projector: nn.Module,
        predictor: nn.Module | None,  # noqa: ARG002
    ) -> None:
        super().__init__(backbone)
        self._width = input_dim(projector)

    def start(self, classes: int) -> None:
        """Make the last layer, one output for each training class."""
        self.classifier = nn.Linear(self._width, classes)

    def loss(
        self,
        view_a: Tensor,
        view_b: Tensor,  # noqa: ARG002
        labels: Tensor | None = None,
        update: bool = True,  # noqa: ARG002
    ) -> dict[str, Tensor]:
        """Give the cross-entropy of the classes, and the share that is named rightly."""
        assert labels is not None  # the feed of a supervised method has labels
        features = self.backbone(view_a)
        logits = self.classifier(features)
        right = (logits.detach().argmax(dim=1) == labels).float().mean()
        even = spread(self.query_head(features))
        return {"total": F.cross_entropy(logits, labels), "accuracy": right, "spread": even}
