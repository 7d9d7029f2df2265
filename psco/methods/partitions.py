"""The second stage of CACTUs: partitions of the training images by k-means on their codes."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import torch
from torch import Tensor

from psco.errors import InputError, PscoError, counted
from psco.methods.stages import Artefact, Stage, StageInputs

MIN_LARGE = 0.75  # of the clusters must have enough images
MOST_FITS = 10  # of one partition
MOST_ITERATIONS = 100  # of k-means; few partitions need as many


class Partitions(Stage):
    """Cluster the codes several times; a unit is one partition.

    The first partition clusters the codes themselves, the others codes whose coordinates are
    multiplied by numbers drawn from [0, 1). A partition is fitted again until more than 75 % of its
    clusters have more than ``members`` images; the smaller clusters are then dropped. Without codes
    all clusters are drawn at random, with sizes that differ by at most one image.

    Parameters
    ----------
    clusters, partitions
        Clusters of a partition, and number of partitions.
    members
        K + Q, images that a task takes from a cluster.
    ways
        N, clusters that a task takes.

    Attributes
    ----------
    labels
        The partitions so far, each (n,) int32; -1 for images of dropped clusters.
    """

    name = "partition"

    def __init__(self, clusters: int, partitions: int, members: int, ways: int) -> None:
        for option, value, least in (("clusters", clusters, 2), ("partitions", partitions, 1)):
            if value < least:
                raise InputError(f"{option} must be at least {least}, got {value}")
        if ways > MIN_LARGE * clusters:
            raise InputError(
                f"clusters must be at least {int(np.ceil(ways / MIN_LARGE))} for tasks of {ways} "
                f"ways, got {clusters}"
            )
        self._clusters, self._partitions, self._members = clusters, partitions, members
        self.labels: list[Tensor] = []

    def check(self, images: int) -> None:
        """Raise InputError if there are too few images for so many clusters of enough images."""
        if self._clusters > images:
            raise InputError(
                f"method.clusters must be at most the {counted(images, 'image')}, got "
                f"{self._clusters}; {self._remedy(images)}"
            )
        needed = (int(MIN_LARGE * self._clusters) + 1) * (self._members + 1)
        if needed > images:
            raise InputError(
                f"more than 75 % of {self._clusters} clusters must have more than {self._members} "
                f"images, which takes {needed} images, got {images}; {self._remedy(images)}"
            )

    def start(self, inputs: StageInputs) -> int:
        """Return the number of partitions."""
        self._codes = inputs.artefacts["encode"]["codes"].float().numpy()  # (n, d)
        self.labels = []
        return self._partitions

    def advance(self, unit: int) -> str:
        """Fit the next partition.

        Raises
        ------
        PscoError
            If too many of its clusters stay too small.
        """
        scale = torch.rand(self._codes.shape[1]).numpy() if unit else None
        large = 0
        for _ in range(MOST_FITS):
            seed = int(torch.randint(2**31, ()))
            found = self._fit(scale, seed)
            sizes = np.bincount(found, minlength=self._clusters)
            large = int((sizes > self._members).sum())
            if is_balanced(sizes, self._members):
                kept = np.where(sizes[found] > self._members, found, -1).astype(np.int32)
                self.labels.append(torch.from_numpy(kept))
                return f"{large} of {self._clusters} clusters"
        raise PscoError(
            f"partition {unit + 1}: only {large} of {self._clusters} clusters have more than "
            f"{self._members} images after {MOST_FITS} fits, and more than 75 % must; "
            f"{self._remedy(len(self._codes))}"
        )

    def _fit(self, scale: np.ndarray | None, seed: int) -> np.ndarray:
        if not self._codes.shape[1]:
            order = np.random.Generator(np.random.Philox(key=seed)).permutation(len(self._codes))
            return order % self._clusters
        return kmeans_labels(
            self._codes if scale is None else self._codes * scale, self._clusters, seed
        )

    def _remedy(self, images: int) -> str:
        fewer = max(2, images // (3 * (self._members + 1)))
        return f"try --set method.clusters={fewer}, or fewer method.shots and method.queries"

    def state_dict(self) -> dict[str, Any]:
        """Return the partitions so far."""
        return {"labels": list(self.labels)}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue from what `state_dict` returned."""
        self.labels = list(state["labels"])

    def artefact(self) -> Artefact:
        """Return the labels, (partitions, n) int32."""
        return {"labels": torch.stack(self.labels)}


def is_balanced(sizes: np.ndarray, members: int) -> bool:
    """Whether more than 75 % of clusters, given their sizes (k,), have more than K + Q images."""
    return bool((sizes > members).sum() > MIN_LARGE * len(sizes))


def kmeans_labels(codes: np.ndarray, clusters: int, seed: int) -> np.ndarray:
    """Return the cluster of each code (n, d), (n,) int32, by k-means++ and Lloyd's steps."""
    # It takes a second to import, and most commands do not need it.
    from sklearn.cluster import KMeans
    from sklearn.exceptions import ConvergenceWarning
    from threadpoolctl import threadpool_limits  # type: ignore[import-untyped]

    # The threads of k-means add up in any order; one thread gives the same bits each time.
    with threadpool_limits(1, "openmp"), warnings.catch_warnings():
        # Of fewer distinct codes than clusters; such a partition is not balanced, see `advance`.
        warnings.simplefilter("ignore", ConvergenceWarning)
        fit = KMeans(clusters, n_init=1, max_iter=MOST_ITERATIONS, random_state=seed).fit(codes)
    labels: np.ndarray = fit.labels_
    return labels
