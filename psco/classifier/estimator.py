"""The few-shot classifier as a scikit-learn estimator: the constructor stores, `fit` learns."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted

from psco.classifier.calibration import Calibration, open_encoder
from psco.classifier.features import (
    check_classes,
    check_features,
    check_labels,
    check_training_features,
    embed_features,
)
from psco.classifier.fitting import AUTO, fit_model
from psco.classifier.images import collect_images, embed_images, image_names
from psco.classifier.model import Model, Supports
from psco.classifier.storage import Saved, read_classifier, write_classifier
from psco.errors import InputError, quoted
from psco.evaluation.embed import Encoder
from psco.evaluation.rules import Embeddings


class FewShotClassifier(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """A scikit-learn classifier that learns from a few examples of each class, even one.

    ``X`` is a list of paths, Pillow images, arrays or tensors, or all images at once as an array
    (n, H, W[, C]); one array (H, W, 3) is one image. Pixels are whole numbers from 0 to 255 or
    floats from 0 to 1. Without an encoder, ``X`` is a table of features (n, width). ``y`` holds
    labels of any sortable type; classes may differ in their number of shots.

    Parameters
    ----------
    encoder
        A run folder, an `Encoder`, or None for features. Features are centred on the mean of the
        supports and divided by one common scale. The rule ``prototype`` then compares squared
        Euclidean distances to the class means, since such features were not trained for cosines.
    rule
        How queries are classified: a name in ``psco.RULES``, or ``"auto"`` for the one that
        classifies most supports correctly by the others, see `choose_rule`. A transductive rule
        uses all images of one call together.
    adapt_steps
        Steps of training the heads on the supports, once, in `fit`; requires the rule
        ``prototype``. See the rule ``adapt``.
    temperature
        Divides the scores before the softmax. ``"auto"`` classifies each support by the others
        and minimises the log loss, with a prior: the temperature in the run's
        ``calibration.json``, else a tenth of the margin by which supports score best in their own
        class. With one shot per class, the prior is used.
    reject_below
        Images of no given class are labelled ``"unknown"``. None never rejects; a number rejects
        where the largest probability is below it. ``"auto"`` rejects by the similarity to the
        nearest class, with a threshold that rejects 5 % of genuine images, as estimated from
        supports that are left out and from the run's ``calibration.json``. With rejection, the
        predictions have dtype object unless the labels are text.
    device
        Where images are embedded: ``"auto"``, ``"cpu"``, ``"cuda"``, ...
    random_state
        Chooses the supports to leave out if there are more than 200.
    rule_options
        Options of the rule, such as ``{"k": 3}``.

    Attributes
    ----------
    classes_
        (N,) labels, sorted.
    prototypes_
        (N, d) class centres of unit length; without an encoder, the means.
    support_counts_
        (N,) shots of each class.
    support_names_, support_images_
        Path or number, and thumbnail (32, 32, C), of each support; features have no thumbnails.
    rule_
        Name of the rule in use.
    temperature_, threshold_
        The values in use. The threshold is None, a probability, or, if automatic, a similarity.
    n_features_in_
        Width of the features, of the backbone or of X.

    Examples
    --------
    >>> clf = FewShotClassifier().fit([[0.0, 0.0], [4.0, 4.0]], ["near", "far"])
    >>> clf.predict([[1.0, 0.5]]).tolist()
    ['near']
    """

    _network: Encoder | None
    _calibration: Calibration | None
    _model: Model

    def __init__(
        self,
        encoder: str | os.PathLike[str] | Encoder | None = None,
        rule: str = "prototype",
        adapt_steps: int = 0,
        temperature: float | str = "auto",
        reject_below: float | str | None = None,
        device: str = "auto",
        random_state: int | np.random.RandomState | None = None,
        rule_options: dict[str, Any] | None = None,
    ) -> None:
        self.encoder = encoder
        self.rule = rule
        self.adapt_steps = adapt_steps
        self.temperature = temperature
        self.reject_below = reject_below
        self.device = device
        self.random_state = random_state
        self.rule_options = rule_options

    def fit(self, X: Any, y: Any) -> FewShotClassifier:
        """Learn the classes from supports X with labels y; earlier ones are forgotten.

        Raises
        ------
        InputError
            If X and y do not match, there is only one class, or a parameter is not allowed.
        """
        supports, names = self._first_supports(X, y)
        check_classes(supports.labels, "y")
        return self._learn(supports, names)

    def partial_fit(self, X: Any, y: Any, classes: Any = None) -> FewShotClassifier:
        """Add supports of known or new classes.

        Unlike `fit`, it accepts a single class, since others may follow.

        Parameters
        ----------
        X, y
            As in `fit`.
        classes
            All labels that y may hold, as in scikit-learn; None allows any. Classes without a
            support are not predicted.

        Raises
        ------
        InputError
            As in `fit`, or if y holds a label that is not in ``classes``.
        """
        others = [] if classes is None else np.setdiff1d(y, classes).tolist()
        if others:
            raise InputError(f"y holds {quoted(others[0])}, which is not in classes; add it there")
        if not hasattr(self, "classes_"):
            return self._learn(*self._first_supports(X, y))
        supports, names = self._embed_supports(X, y, first=False)
        return self._learn(self._model.supports.joined(supports), [*self.support_names_, *names])

    def predict(self, X: Any) -> np.ndarray:
        """Return the labels (n,) of images; see ``reject_below`` for ``"unknown"``."""
        embeddings = self._embed(X)
        return self.model.predict(embeddings).labels

    def predict_proba(self, X: Any) -> np.ndarray:
        """Return the probabilities (n, N) of the classes, in the order of ``classes_``."""
        embeddings = self._embed(X)
        return self.model.predict(embeddings).probabilities

    def decision_function(self, X: Any) -> np.ndarray:
        """Return the scores (n, N) of the rule.

        For two classes, as in scikit-learn, (n,): the second score minus the first.
        """
        embeddings = self._embed(X)
        scores = self.model.scores(embeddings)
        return scores[:, 1] - scores[:, 0] if scores.shape[1] == 2 else scores

    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        """Return the accuracy in [0, 1]; rejecting an image of a known class is an error."""
        return float(np.average(self.predict(X) == np.asarray(y), weights=sample_weight))

    @property
    def model(self) -> Model:
        """The fitted model, which classifies embeddings."""
        check_is_fitted(self)
        if self.network is not None and self._model.heads is None:  # after unpickling
            self._model.heads = self.network.heads
        return self._model

    @property
    def network(self) -> Encoder | None:
        """The encoder in use; None for features."""
        if not hasattr(self, "_network"):  # not fitted, or after unpickling
            self._network, _ = open_encoder(self.encoder)
        return self._network

    @property
    def calibration(self) -> Calibration | None:
        """The calibration of the encoder's run; None without an encoder or a calibration."""
        check_is_fitted(self)
        return self._calibration

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write everything that `predict` and `partial_fit` need into one file.

        See ``psco.classifier.storage``. ``device`` is not stored, ``random_state`` only if it is a
        number.

        Raises
        ------
        InputError
            If a label is neither text, a number nor a boolean.
        """
        check_is_fitted(self)
        parameters = self.get_params()
        del parameters["encoder"], parameters["device"]
        if self.rule == AUTO:
            parameters["rule"] = self.rule_
        if not isinstance(self.random_state, int):
            parameters["random_state"] = None
        names = list(self.support_names_)
        saved = Saved(parameters, self.network, self._calibration, self._model, names)
        write_classifier(Path(path), saved)

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> FewShotClassifier:
        """Read a saved classifier; its ``encoder`` is the network in the file.

        Raises
        ------
        InputError
            If there is no such file, or it is not a classifier.
        PscoError
            If the file is damaged, or was written by another version.
        """
        saved = read_classifier(Path(path))
        classifier = cls(encoder=saved.encoder, **saved.parameters)
        classifier._network, classifier._calibration = saved.encoder, saved.calibration
        return classifier._store(saved.model, saved.names)

    def __getstate__(self) -> dict[str, Any]:
        state = dict(super().__getstate__())
        if isinstance(self.encoder, (str, os.PathLike)):
            # A path stays a path: the network is loaded from it again when it is needed.
            state.pop("_network", None)
            if "_model" in state:
                state["_model"] = replace(state["_model"], heads=None)
        return state

    def _first_supports(self, X: Any, y: Any) -> tuple[Supports, list[str]]:
        self._network, self._calibration = open_encoder(self.encoder)
        return self._embed_supports(X, y, first=True)

    def _embed_supports(self, X: Any, y: Any, first: bool) -> tuple[Supports, list[str]]:
        start = 0 if first else len(self.support_names_)
        if self.network is None:
            features, labels = check_training_features(self, X, y, reset=first)
            supports = Supports(embed_features(features), labels, from_encoder=False)
            return supports, image_names(features, start)
        images = collect_images(X)
        labels = check_labels(y, len(images))
        embeddings, thumbnails = embed_images(
            self.network, images, self.device, with_thumbnails=True
        )
        return Supports(embeddings, labels, thumbnails), image_names(images, start)

    def _embed(self, X: Any) -> Embeddings:
        check_is_fitted(self)
        if self.network is None:
            return embed_features(check_features(self, X))
        return embed_images(self.network, collect_images(X), self.device)[0]

    def _learn(self, supports: Supports, names: list[str]) -> FewShotClassifier:
        model = fit_model(
            supports,
            heads=None if self.network is None else self.network.heads,
            calibration=self._calibration,
            random=check_random_state(self.random_state),
            rule=self.rule,
            rule_options=self.rule_options,
            adapt_steps=self.adapt_steps,
            temperature=self.temperature,
            reject_below=self.reject_below,
        )
        return self._store(model, names)

    def _store(self, model: Model, names: list[str]) -> FewShotClassifier:
        self._model = model
        self.support_names_ = names
        self.support_images_ = model.supports.thumbnails
        self.classes_ = model.classes
        self.prototypes_ = model.prototypes
        self.support_counts_ = np.bincount(model.targets.numpy())
        self.rule_ = model.rule_name
        self.temperature_ = model.temperature
        self.threshold_ = model.threshold
        self.n_features_in_ = model.supports.embeddings.features.shape[1]
        return self
