"""Supervised transfer: a classifier of the training classes, whose features classify new ones."""

from __future__ import annotations

from typing import ClassVar

import torch.nn.functional as F
from torch import Tensor, nn

from psco.methods.base import METHODS, Batch, Logs, Method, embedding_std
from psco.networks.networks import Networks


@METHODS.register("supervised")
class Supervised(Method):
    """Cross-entropy over all training classes; new classes are told apart by a linear probe.

    Parameters
    ----------
    networks
        f; the heads are not used.
    """

    title, kind, rule, views = "Supervised transfer", "supervised", "linear", 1
    summary = "learns to classify the training classes; a linear probe classifies new ones"
    settings: ClassVar = {"heads": {"predictor": False}}
    training_only = ("classifier",)

    def __init__(self, networks: Networks) -> None:
        super().__init__(networks.without_heads())

    def set_classes(self, classes: int) -> None:
        """Make the last layer, one output for each training class."""
        self.classifier = nn.Linear(self.width, classes)

    def loss(self, batch: Batch) -> tuple[Tensor, Logs]:
        """Return the cross-entropy of the classes, and log the accuracy."""
        labels = batch.labels
        assert labels is not None  # the feed of a supervised method has labels
        features = self.backbone(batch.view_a)
        logits = self.classifier(features)
        accuracy = (logits.detach().argmax(dim=1) == labels).float().mean()
        logs = {"accuracy": accuracy, "embedding_std": embedding_std(self.query_head(features))}
        return F.cross_entropy(logits, labels), logs
