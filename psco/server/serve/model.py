"""What is served: a classifier as a function from decoded pictures to answers."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Protocol

import numpy as np

from psco.classifier import FewShotClassifier
from psco.classifier.bulk import encoder_of
from psco.classifier.images import choose_device, embedder_on
from psco.classifier.model import Prediction
from psco.errors import InputError
from psco.export.onnx.reading import OnnxClassifier
from psco.recipes.recipe import ImageSettings


class ServedModel(Protocol):
    """A classifier of decoded pictures."""

    @property
    def image(self) -> ImageSettings:
        """The settings that pictures are decoded with."""

    @property
    def classes(self) -> list[Any]:
        """The N labels, in the order of the probabilities."""

    def predict(self, images: np.ndarray) -> Prediction:
        """Classify images (n, size, size, channels) uint8."""


class TorchClassifier:
    """A classifier file of ``psco fit``.

    Parameters
    ----------
    classifier
        Fitted with an encoder and an inductive rule.
    device
        Where pictures are embedded: ``"auto"``, ``"cpu"``, ``"cuda"``, ...

    Raises
    ------
    InputError
        If the answer for a picture would depend on other pictures, or there is no encoder.
    """

    def __init__(self, classifier: FewShotClassifier, device: str = "auto") -> None:
        self._encoder, self._model = encoder_of(classifier), classifier.model
        if self._model.rule.transductive:
            raise InputError(
                f"the rule {self._model.rule_name!r} classifies pictures by one another, and those "
                f"of different people must not meet; fit with an inductive rule such as 'prototype'"
            )
        self._device = choose_device(device)

    @property
    def image(self) -> ImageSettings:
        """The settings that pictures are decoded with."""
        return self._encoder.recipe.image

    @property
    def classes(self) -> list[Any]:
        """The N labels, in the order of the probabilities."""
        labels: list[Any] = self._model.classes.tolist()
        return labels

    def predict(self, images: np.ndarray) -> Prediction:
        """Classify images (n, size, size, channels) uint8."""
        with embedder_on(self._device, self._encoder) as embed:
            return self._model.predict(embed(images))


def open_model(path: Path, device: str = "auto") -> ServedModel:
    """Return the classifier in a file of ``psco fit``, or in an .onnx file of ``psco export``.

    Raises
    ------
    InputError
        If it cannot be read or served.
    PscoError
        If it is damaged.
    """
    if path.suffix.lower() == ".onnx":
        return OnnxClassifier(path)
    return TorchClassifier(FewShotClassifier.load(path), device)
