"""The classifier people use: a few labelled pictures in, labels for others out."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted

from psco.classifier.bare import bare_embeddings
from psco.classifier.calibration import Calibration
from psco.classifier.inputs import (
    check_classes,
    embed_pictures,
    open_encoder,
    take_features,
    take_labels,
)
from psco.classifier.model import AUTO, Choices, Model, assemble, learn
from psco.classifier.pictures import count_pictures, names_of
from psco.classifier.storage import Stored, read_classifier, write_classifier
from psco.classifier.supports import Shots
from psco.errors import InputError
from psco.evaluation.embed import Encoder
from psco.evaluation.rules import Embeddings


class FewShotClassifier(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """A scikit-learn classifier that needs a few examples of each class, even one.

    ``X`` is a list of paths, of Pillow images, of arrays or of tensors, or all images at once as
    uint8 (n, H, W[, C]); without an encoder it is a table of features (n, width). ``y`` holds
    labels of any type that can be sorted; classes may differ in their number of shots.

    Parameters
    ----------
    encoder
        A run folder, an `Encoder`, or None for bare features. These are centred on the mean of the
        supports and divided by one common scale; the rule ``prototype`` then compares squared
        Euclidean distances to the means of the classes, since nobody has trained such features for
        cosines.
    rule
        How queries are classified: a name in ``psco.RULES``. A transductive rule uses all pictures
        of one call together.
    adapt_steps
        Steps of training the heads on the supports, once, in `fit`; goes with ``prototype``. See
        the rule ``adapt``.
    temperature
        By which scores are divided before softmax makes them probabilities. ``"auto"`` classifies
        each support by the others and takes the temperature of least log loss, near the one to be
        expected: that of the run's ``calibration.json``, else a tenth of how much the supports
        stand out in their own classes. With one shot per class, the expected one is used.
    reject_below
        Pictures of no given class are labelled ``"unknown"``: None never, a number where the
        largest probability is below it. ``"auto"`` goes by the likeness to the nearest class, the
        limit being chosen so that 5 % of genuine pictures are rejected, judging by supports that
        are left out and by the run's ``calibration.json``. Rejection makes the predictions an array
        of objects unless the labels are texts.
    device
        ``"auto"``, ``"cpu"``, ``"cuda"``, ... to embed pictures on.
    random_state
        Chooses supports to leave out if there are more than 200.
    rule_options
        Options of the rule, such as ``{"k": 3}``.

    Attributes
    ----------
    classes_
        (N,) labels, sorted.
    prototypes_
        (N, d) centres of the classes, of unit length; means for bare features.
    support_counts_
        (N,) shots of each class.
    support_names_, support_images_
        Path or number, and small copy (32, 32, C), of each support; no copies of bare features.
    temperature_, threshold_
        In use; the threshold is None, a probability, or a likeness if chosen automatically.
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
    _shots: Shots
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
        """Learn classes from supports X with labels y, forgetting earlier ones.

        Raises
        ------
        InputError
            If pictures and labels do not fit each other, there is a single class, or a parameter
            is not allowed.
        """
        shots, names = self._begin(X, y)
        check_classes(shots.labels, "y")
        return self._learn(shots, names)

    def partial_fit(self, X: Any, y: Any, classes: Any = None) -> FewShotClassifier:
        """Add shots, of known or of new classes, to what was learnt before.

        Unlike `fit`, it takes a single class, too, since others may follow.

        Parameters
        ----------
        X, y
            As in `fit`.
        classes
            All labels that y may hold, as scikit-learn has it; None allows any. Classes without
            a support are not predicted.

        Raises
        ------
        InputError
            As in `fit`, or if y holds another label than ``classes``.
        """
        others = [] if classes is None else np.setdiff1d(y, classes).tolist()
        if others:
            raise InputError(f"y holds {others[0]!r}, which is not among the classes given")
        if not hasattr(self, "classes_"):
            return self._learn(*self._begin(X, y))
        shots, names = self._take(X, y, first=False)
        return self._learn(self._shots.joined(shots), [*self.support_names_, *names])

    def predict(self, X: Any) -> np.ndarray:
        """Give the labels (n,) of pictures; see ``reject_below`` for ``"unknown"``."""
        points = self._points(X)
        return self.model.judge(points).labels

    def predict_proba(self, X: Any) -> np.ndarray:
        """Give the probabilities (n, N) of the classes, in the order of ``classes_``."""
        points = self._points(X)
        return self.model.judge(points).probabilities

    def decision_function(self, X: Any) -> np.ndarray:
        """Give the scores (n, N) of the rule.

        For two classes they are, as scikit-learn has it, (n,): the second less the first.
        """
        points = self._points(X)
        scores = self.model.scores(points)
        return scores[:, 1] - scores[:, 0] if scores.shape[1] == 2 else scores

    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        """Give the accuracy in [0, 1]; a rejected picture of a known class is a mistake."""
        return float(np.average(self.predict(X) == np.asarray(y), weights=sample_weight))

    @property
    def model(self) -> Model:
        """What has been learnt, for points that are embedded already."""
        check_is_fitted(self)
        if self.network is not None and self._model.task.heads is None:  # after a pickle
            self._model = self._model.with_heads(self.network.heads)
        return self._model

    @property
    def network(self) -> Encoder | None:
        """The encoder in use; None for bare features."""
        if not hasattr(self, "_network"):  # not fitted, or after a pickle
            self._network, _ = open_encoder(self.encoder)
        return self._network

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write all that predicting and adding shots need into one file.

        See ``psco.classifier.storage``. ``device`` is not kept; ``random_state`` only as a number.

        Raises
        ------
        InputError
            If a label is neither text, whole number, fraction nor truth value.
        """
        check_is_fitted(self)
        parameters = self.get_params()
        del parameters["encoder"], parameters["device"]
        if not isinstance(self.random_state, int):
            parameters["random_state"] = None
        stored = Stored(
            parameters,
            self.network,
            self._shots,
            list(self.support_names_),
            self._model.adapted,
            self.temperature_,
            self.threshold_,
            self._calibration,
        )
        write_classifier(Path(path), stored)

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> FewShotClassifier:
        """Read a classifier that was saved; its ``encoder`` is the network in the file.

        Raises
        ------
        InputError
            If there is no such file, or it is no classifier.
        PscoError
            If the file was cut or changed, or another version wrote it.
        """
        stored = read_classifier(Path(path))
        clf = cls(encoder=stored.encoder, **stored.parameters)
        clf._network, clf._calibration = stored.encoder, stored.calibration
        heads = None if stored.encoder is None else stored.encoder.heads
        rule, options = clf._choices().settled_rule(heads)
        model = assemble(stored.shots, rule, options, heads, stored.adapted)
        model = replace(model, temperature=stored.temperature, threshold=stored.threshold)
        model = replace(model, by_likeness=clf.reject_below == AUTO)
        return clf._remember(stored.shots, stored.names, model)

    def __getstate__(self) -> dict[str, Any]:
        state = dict(super().__getstate__())
        if isinstance(self.encoder, (str, os.PathLike)):
            # A path stays a path, from which the network is loaded again when it is needed.
            state.pop("_network", None)
            if "_model" in state:
                state["_model"] = state["_model"].with_heads(None)
        return state

    def _begin(self, X: Any, y: Any) -> tuple[Shots, list[str]]:
        self._network, self._calibration = open_encoder(self.encoder)
        return self._take(X, y, first=True)

    def _learn(self, shots: Shots, names: list[str]) -> FewShotClassifier:
        heads = None if self.network is None else self.network.heads
        random = check_random_state(self.random_state)
        model = learn(shots, self._choices(), heads, self._calibration, random)
        return self._remember(shots, names, model)

    def _remember(self, shots: Shots, names: list[str], model: Model) -> FewShotClassifier:
        self._shots, self._model = shots, model
        self.support_names_, self.support_images_ = names, shots.pictures
        self.classes_, self.prototypes_ = model.classes, model.prototypes
        self.support_counts_ = np.bincount(model.task.labels.numpy())
        self.temperature_, self.threshold_ = model.temperature, model.threshold
        self.n_features_in_ = shots.points.features.shape[1]
        return self

    def _choices(self) -> Choices:
        return Choices(
            self.rule, self.rule_options, self.adapt_steps, self.temperature, self.reject_below
        )

    def _take(self, X: Any, y: Any, first: bool) -> tuple[Shots, list[str]]:
        start = 0 if first else len(self.support_names_)
        if self.network is None:
            features, labels = take_features(self, X, y, fitting=True, first=first)
            return Shots(bare_embeddings(features), labels, bare=True), names_of(features, start)
        labels = take_labels(y, count_pictures(X))
        points, pictures = embed_pictures(self.network, X, self.device, small_copies=True)
        return Shots(points, labels, pictures), names_of(X, start)

    def _points(self, X: Any) -> Embeddings:
        check_is_fitted(self)
        if self.network is None:
            return bare_embeddings(take_features(self, X, fitting=False)[0])
        return embed_pictures(self.network, X, self.device)[0]
