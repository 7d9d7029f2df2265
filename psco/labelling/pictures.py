"""What pictures tell without labels: clusters, look-alikes, outliers and a map."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from psco.classifier.images import collect_images, embed_images
from psco.data.duplicates import near_duplicates
from psco.data.outliers import Outlier, find_outliers
from psco.errors import InputError, quoted
from psco.evaluation.embed import Encoder
from psco.labelling.clusters import cluster, default_clusters
from psco.labelling.embedding import Pictures, Progress, embed_pictures
from psco.labelling.maps import pca_map, tsne_map
from psco.labelling.neighbours import (
    Copies,
    Similar,
    group_copies,
    most_similar,
)

Result = TypeVar("Result")


class PictureFolder:
    """The pictures of a folder, known by number, as a network sees them.

    They are embedded when that is first needed. What takes long is computed once.

    Parameters
    ----------
    encoder
        The network.
    folder, names
        The folder, and the files in it.
    device
        Where pictures are embedded: ``"auto"``, ``"cpu"``, ``"cuda"``, ...
    """

    def __init__(self, encoder: Encoder, folder: Path, names: Sequence[str], device: str) -> None:
        self._encoder, self._folder, self._names = encoder, folder, names
        self._device = device
        self._pictures: Pictures | None = None
        self._embedding = threading.Lock()
        self._known: dict[object, Any] = {}
        self._slow: dict[object, threading.Lock] = {}
        self._tsne: threading.Thread | None = None

    @property
    def is_embedded(self) -> bool:
        """Whether the pictures are embedded."""
        return self._pictures is not None

    def embed(self, progress: Progress | None = None) -> Pictures:
        """Return the embedded pictures; see `embed_pictures`."""
        with self._embedding:
            if self._pictures is None:
                self._pictures = embed_pictures(
                    self._encoder, self._folder, self._names, device=self._device, progress=progress
                )
            return self._pictures

    @property
    def broken(self) -> dict[int, str]:
        """The pictures that cannot be decoded, and why; known once they are embedded."""
        return {} if self._pictures is None else self._pictures.broken

    def intact(self) -> tuple[np.ndarray, np.ndarray]:
        """Return the numbers (m,) and embeddings (m, d) of the pictures that can be decoded."""
        pictures = self.embed()

        def compute() -> tuple[np.ndarray, np.ndarray]:
            numbers, vectors = pictures.intact, pictures.support.numpy()
            return numbers, vectors if len(numbers) == len(pictures) else vectors[numbers]

        return self._once("intact", compute)

    def clusters_of_intact(self, number: int) -> np.ndarray:
        """Return the clusters (m,) of the pictures that can be decoded."""
        _, vectors = self.intact()
        return self._once(("clusters", number), lambda: cluster(vectors, number))

    def clusters(self, number: int | None = None) -> np.ndarray:
        """Return the cluster (n,) of each picture; −1 for broken ones."""
        numbers, _ = self.intact()
        found = np.full(len(self._names), -1)
        found[numbers] = self.clusters_of_intact(number or default_clusters(len(numbers)))
        return found

    def similar(self, picture: Any, count: int) -> list[Similar]:
        """Return the pictures most similar to another one; see `Labelling.similar`."""
        numbers, vectors = self.intact()
        own = int(picture) if isinstance(picture, (int, np.integer)) else -1
        if own in self.broken:
            raise InputError(f"{quoted(self._names[own])} is broken: {self.broken[own]}")
        if own >= 0:
            vector = vectors[np.searchsorted(numbers, own)]
        else:
            images = collect_images([picture])
            vector = embed_images(self._encoder, images, self._device)[0].support[0].numpy()
        found = self._numbered(most_similar(vectors, vector, count + 1))
        return [each for each in found if each.number != own][:count]

    def duplicates(self, labelled: np.ndarray) -> list[Copies]:
        """Return groups of near-duplicates, the most similar first; labelled (n,) ones are kept."""
        pictures = self.embed()
        pairs = self._once("pairs", lambda: near_duplicates(pictures.fingerprints))
        return group_copies(pairs, pictures.sizes, labelled)

    def outliers(self) -> list[Outlier]:
        """Return the pictures that are far from all others, the farthest first."""
        _, vectors = self.intact()
        return self._numbered(self._once("outliers", lambda: find_outliers(vectors)))

    def map(self, kind: str, wait: bool) -> np.ndarray | None:
        """Return the pictures in the plane; see `Labelling.map`."""
        if kind not in ("pca", "tsne"):
            raise InputError(f"a map is 'pca' or 'tsne', not {quoted(kind)}")
        if kind == "pca" or wait or kind in self._known:
            return self._once(kind, lambda: self._map(kind))
        if self._tsne is None:
            self._tsne = threading.Thread(target=self.map, args=(kind, True), daemon=True)
            self._tsne.start()
        return None

    def _map(self, kind: str) -> np.ndarray:
        numbers, vectors = self.intact()
        points = np.full((len(self._names), 2), np.nan, dtype=np.float32)
        points[numbers] = pca_map(vectors) if kind == "pca" else tsne_map(vectors)
        return points

    def _numbered(self, found: list[Any]) -> list[Any]:
        """Return findings about intact pictures with the numbers of all pictures."""
        numbers, _ = self.intact()
        return [each._replace(number=int(numbers[each.number])) for each in found]

    def _once(self, key: object, compute: Callable[[], Result]) -> Result:
        """Return what is computed at the first call with this key; others wait for it."""
        with self._slow.setdefault(key, threading.Lock()):
            if key not in self._known:
                self._known[key] = compute()
            known: Result = self._known[key]
            return known
