"""The best model of a run on validation tasks, as the model that the run keeps."""

from __future__ import annotations

import copy
from collections.abc import Callable
from pathlib import Path
from typing import Any

from psco.methods import Method
from psco.training.checkpoint import load_model_weights, model_weights

Validate = Callable[[Method], float]  # the accuracy of a network, which must not change


class BestModel:
    """Keeps a copy of the weights with the highest validation accuracy.

    Parameters
    ----------
    method
        The method that is trained.
    validate
        Returns the validation accuracy of a network.

    Attributes
    ----------
    step
        Steps after which the kept weights were reached.
    score, latest
        Accuracy of the kept weights, and of those that were offered last; None before the first.
    """

    def __init__(self, method: Method, validate: Validate) -> None:
        self.method = copy.deepcopy(method)
        self.step = 0
        self.score: float | None = None
        self.latest: float | None = None
        self._validate = validate

    def offer(self, method: Method, step: int) -> None:
        """Measure the weights of ``method``, and keep them if they are better; the first of equals.

        The network is measured as a copy, on the CPU in single precision.
        """
        self.latest = self._validate(copy.deepcopy(method).float().cpu())
        if self.score is None or self.latest > self.score:
            self.method.load_state_dict(method.state_dict())
            self.score, self.step = self.latest, step

    def state_dict(self) -> dict[str, Any]:
        """Return everything that later choices depend on."""
        weights = {} if self.score is None else model_weights(self.method)
        return {"step": self.step, "score": self.score, "latest": self.latest, "weights": weights}

    def load_state_dict(self, state: dict[str, Any], source: Path) -> None:
        """Load what `state_dict` returned; ``source`` names the file in errors."""
        self.step, self.score, self.latest = state["step"], state["score"], state["latest"]
        if self.score is not None:
            load_model_weights(self.method, state["weights"], source)
