"""The session: a folder of pictures, a model, and labels that are kept as they are given."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from psco.classifier.model import Supports
from psco.data.outliers import Outlier
from psco.data.reading.listing import image_files
from psco.data.reading.source import FolderSource
from psco.errors import InputError, quoted
from psco.evaluation.embed import Encoder
from psco.labelling.accuracy import Accuracy, estimate_accuracy
from psco.labelling.embedding import Progress
from psco.labelling.files import (
    How,
    LabelRow,
    label_rows,
    merge_labels,
    write_folders,
    write_labels,
)
from psco.labelling.labels import STATES, Label
from psco.labelling.live import Labelled, LiveClassifier, Mistake, Predictions, no_predictions
from psco.labelling.model import open_model, save_model
from psco.labelling.neighbours import Copies, Similar
from psco.labelling.pictures import PictureFolder
from psco.labelling.store import LabelStore
from psco.labelling.suggestions import Pool, Suggestion, suggest

SESSION = ".psco-labels"  # hidden, so that it is never taken for pictures


class Labelling(LabelStore):
    """Labels the pictures of a folder, with suggestions and predictions.

    Pictures are known by their number in ``names``: their file names relative to the folder,
    sorted. Methods may be called from several threads.

    Parameters
    ----------
    model
        A run folder, a built-in encoder such as ``"imagenet"``, an `Encoder`, or a ``.psco``
        classifier, whose supports then count as labels.
    folder
        The pictures, at any depth.
    session
        Folder of the journal; by default ``.psco-labels`` in the folder of the pictures. A session
        that exists goes on.
    labels
        CSV file with labels to begin with, or several files, such as those of several people; see
        `merge_labels`. Pictures that have a label already keep it.
    device
        Where pictures are embedded: ``"auto"``, ``"cpu"``, ``"cuda"``, ...

    Raises
    ------
    InputError
        If the model cannot be used, there are no pictures, or the session is open elsewhere.
    PscoError
        If the journal is damaged.

    Attributes
    ----------
    conflicts
        Pictures that several files of ``labels`` label differently; these are left unlabelled.

    Examples
    --------
    >>> session = psco.Labelling("imagenet", "pictures")  # doctest: +SKIP
    >>> session.suggest(20)  # doctest: +SKIP
    >>> session.label([3, 17], "oak")  # doctest: +SKIP
    """

    def __init__(
        self,
        model: str | os.PathLike[str] | Encoder,
        folder: str | os.PathLike[str],
        session: str | os.PathLike[str] | None = None,
        labels: str | os.PathLike[str] | Sequence[str | os.PathLike[str]] | None = None,
        device: str = "auto",
    ) -> None:
        self.folder = Path(folder)
        if not self.folder.is_dir():
            raise InputError(f"there is no folder {quoted(folder)}; pass a folder of pictures")
        names = image_files(FolderSource(self.folder))
        given = [labels] if isinstance(labels, (str, os.PathLike)) else labels or []
        merged = merge_labels([Path(file) for file in given], self.folder, names)
        self.conflicts = merged.conflicts
        self._model = open_model(model)
        self._pictures = PictureFolder(self._model.encoder, self.folder, names, device)
        self._live: LiveClassifier | None = None
        self._fitted: tuple[int, Labelled] | None = None
        self._predictions: Predictions | None = None
        known = self._model.supports
        place = self.folder / SESSION if session is None else Path(session)
        super().__init__(names, place, [] if known is None else known.labels.tolist())
        new = {name: Label(text) for name, text in merged.labels.items()}
        with self._closed_on_failure():
            self._write({n: label for n, label in new.items() if n not in self._labels.given})

    @property
    def encoder(self) -> Encoder:
        """The network of the model."""
        return self._model.encoder

    @property
    def is_embedded(self) -> bool:
        """Whether `embed` has finished."""
        return self._pictures.is_embedded

    @property
    def broken(self) -> dict[int, str]:
        """The pictures that cannot be decoded, and why; known once they are embedded."""
        return self._pictures.broken

    def embed(self, progress: Progress | None = None) -> None:
        """Embed the pictures, as far as the cache does not hold them.

        The other methods call this where they need it. Labels can be given meanwhile.

        Parameters
        ----------
        progress
            Called with the numbers of pictures done and of all pictures.
        """
        pictures = self._pictures.embed(progress)
        with self._lock:
            if self._live is not None:
                return
            support, query = pictures.support, pictures.query
            if self._model.supports is not None:
                more = self._model.supports.embeddings
                support = torch.cat([support, more.support])
                query = torch.cat([query, more.query])
            self._live = LiveClassifier(support, query, self._model.calibration)

    def confirm(self, numbers: Iterable[int]) -> int:
        """Accept the predictions of pictures as labels; return the new revision.

        Pictures that have a label, or that are predicted to be of no class, stay as they are.
        """
        chosen = self._checked(numbers)
        self.embed()
        with self._lock:
            pairs = zip(chosen, self._predicted(chosen), strict=True)
            return self._write(
                {
                    self.names[number]: Label(name, name, confirmed=True)
                    for number, name in pairs
                    if name is not None and self.names[number] not in self._labels.given
                }
            )

    def predictions(self) -> Predictions:
        """Return the predictions for all pictures that follow from the present labels."""
        self.embed()
        with self._lock:
            if self._predictions is None or self._predictions.revision != self.revision:
                self._predictions = self._predict()
            return self._predictions

    def suggest(self, count: int) -> list[Suggestion]:
        """Return the pictures to label next, the most useful first.

        Without labels, these are pictures typical of a cluster; as labels come, also uncertain
        ones and ones far from every class.
        """
        predicted = self.predictions()
        intact, vectors = self._pictures.intact()
        labelled = self._is_labelled()[intact]
        margin, similarity = predicted.margin[intact], predicted.similarity[intact]
        pool = Pool(vectors, self._pictures.clusters_of_intact, labelled, ~labelled)
        if predicted.classes:
            pool = pool._replace(margin=margin, similarity=similarity)
        return [each._replace(number=int(intact[each.number])) for each in suggest(pool, count)]

    def clusters(self, number: int | None = None) -> np.ndarray:
        """Return the cluster (n,) of each picture; −1 for broken ones.

        Parameters
        ----------
        number
            Of clusters; by default the square root of the number of pictures, at most 200.
        """
        return self._pictures.clusters(number)

    def similar(self, picture: Any, count: int = 20) -> list[Similar]:
        """Return the pictures most similar to another one, with similarities in [0, 1].

        Parameters
        ----------
        picture
            The number of a picture, which is not returned itself, or any picture: a path, a Pillow
            image or an array.
        count
            Number of pictures; fewer are returned if there are fewer.
        """
        if isinstance(picture, (int, np.integer)):
            self._checked([int(picture)])
        return self._pictures.similar(picture, count)

    def duplicates(self) -> list[Copies]:
        """Return groups of near-duplicates and which to keep, the most similar first."""
        return self._pictures.duplicates(self._is_labelled())

    def outliers(self) -> list[Outlier]:
        """Return the pictures that are far from all others, the farthest first."""
        return self._pictures.outliers()

    def map(self, kind: str = "pca", wait: bool = True) -> np.ndarray | None:
        """Return the pictures in the plane, (n, 2) in [−1, 1]; NaN for broken ones.

        Parameters
        ----------
        kind
            ``"pca"``, at once, or ``"tsne"``, which takes seconds.
        wait
            Wait for it. Otherwise it is computed in the background, and None is returned until it
            is there.
        """
        return self._pictures.map(kind, wait)

    def mistakes(self) -> list[Mistake]:
        """Return the labels that the other labels contradict, the most probable mistakes first."""
        self.embed()
        with self._lock:
            found = self._refitted()[0].mistakes()
        return [each for each in found if each.number < len(self.names)]

    def accuracy(self) -> Accuracy:
        """Return what the labels tell about the accuracy of predictions."""
        self.embed()
        with self._lock:
            live, labelled = self._refitted()
            labels = list(self._labels.given.values())
        return estimate_accuracy(live.support, live.query, labelled, labels)

    def write_csv(self, path: str | os.PathLike[str], *, predicted: bool = False) -> None:
        """Write the classes of the labelled pictures as a table that `psco fit` reads.

        Parameters
        ----------
        path
            The CSV file.
        predicted
            Also write the predictions of all other pictures that are not unknown.
        """
        write_labels(Path(path), self.folder, self.rows(predicted=predicted))

    def write_folders(
        self, path: str | os.PathLike[str], how: How = "copy", *, predicted: bool = False
    ) -> None:
        """Write a folder with a sub-folder per class; see `write_folders` in ``files.py``."""
        labels = {row.path: row.label for row in self.rows(predicted=predicted)}
        write_folders(Path(path), self.folder, labels, how)

    def write_classifier(self, path: str | os.PathLike[str]) -> None:
        """Write a ``.psco`` classifier whose predictions are those of this session.

        Raises
        ------
        InputError
            If there are fewer than two classes.
        """
        self.embed()
        pictures = self._pictures.embed()
        with self._lock:
            live, labelled = self._refitted()
            temperature, threshold = live.temperature, live.threshold
        if len(labelled.classes) < 2:
            raise InputError(
                f"a classifier needs at least 2 classes, got {len(labelled.classes)}; label more"
            )
        rows, order = labelled.rows.sort()
        labels = np.array(labelled.classes)[labelled.targets[order].numpy()]
        own = [row for row in rows.tolist() if row < len(self.names)]
        names = [self.names[row] for row in own]
        embeddings, thumbnails = pictures.complete(own)
        supports = Supports(embeddings, labels[: len(own)], thumbnails)
        if self._model.supports is not None:
            older = self._model.supports
            supports = supports.joined(replace(older, labels=labels[len(own) :]))
            names += self._model.names
        save_model(Path(path), self._model, supports, names, temperature, threshold)

    def rows(self, *, predicted: bool = False) -> list[LabelRow]:
        """Return the lines of `write_csv`, in the order of the pictures."""
        return label_rows(self.names, self.given, self.predictions() if predicted else None)

    def _predicted(self, numbers: Sequence[int]) -> list[str | None]:
        if self._live is None or not numbers:  # labels can be given while pictures are embedded
            return [None] * len(numbers)
        live, labelled = self._refitted()
        if not labelled.classes:
            return [None] * len(numbers)
        found = live.predict(torch.tensor(numbers))
        pairs = zip(numbers, found.number.tolist(), found.unknown.tolist(), strict=True)
        return [
            None if unknown or number in self.broken else labelled.classes[guess]
            for number, guess, unknown in pairs
        ]

    def _predict(self) -> Predictions:
        live, labelled = self._refitted()
        count = len(self.names)
        if not labelled.classes:
            return no_predictions(self.revision, count)
        found = live.predict(torch.arange(count) if live.rows > count else None)
        broken = list(self.broken)
        found.number[broken] = -1
        found.unknown[broken] = False
        return Predictions(self.revision, labelled.classes, *(each.numpy() for each in found))

    def _is_labelled(self) -> np.ndarray:
        labelled = np.zeros(len(self.names), dtype=bool)
        labelled[list(self.given)] = True
        return labelled

    def _labelled(self) -> Labelled:
        """Return the rows with a class: pictures that can be decoded, and then known supports."""
        rows, labels = [], []
        for picture, label in self._labels.given.items():
            row = self._number.get(picture, -1)
            if row >= 0 and label.name not in STATES and row not in self.broken:
                rows.append(row)
                labels.append(label)
        used = {label.name for label in labels}
        classes = [name for name in self._labels.classes if name in used]
        place = {name: number for number, name in enumerate(classes)}
        targets = torch.tensor([place[label.name] for label in labels], dtype=torch.int64)
        confirmed = torch.tensor([label.confirmed for label in labels], dtype=torch.bool)
        return Labelled(torch.tensor(rows, dtype=torch.int64), targets, classes, confirmed)

    def _refitted(self) -> tuple[LiveClassifier, Labelled]:
        """Return the classifier of the present labels, and these labels."""
        assert self._live is not None
        if self._fitted is None or self._fitted[0] != self.revision:
            labelled = self._labelled()
            self._live.refit(labelled)
            self._fitted = self.revision, labelled
        return self._live, self._fitted[1]
