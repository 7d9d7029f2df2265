"""The data sets of a queue: each is looked for once, and a missing one is remembered."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from psco.data import ImageSet, load_dataset
from psco.data.sets.catalogue import BENCHMARKS
from psco.errors import InputError
from psco.recipes.recipe import ImageSettings
from psco.training.inputs import fingerprint


class DataSets:
    """Loads data sets in the size that a recipe needs.

    Parameters
    ----------
    root
        Folder of the data sets; by default ``PSCO_DATA``.
    progress
        Show progress on stderr.
    """

    def __init__(self, root: str | Path | None = None, progress: bool = True) -> None:
        self.root = root
        self._progress = progress
        self._fingerprints: dict[tuple[object, ...], str | InputError] = {}

    def load(
        self, data: str, split: str, image: ImageSettings, number: int | None = None
    ) -> ImageSet:
        """Load a split, or ``number`` images at equal distances in it.

        Raises
        ------
        InputError
            If the data set is missing, or has fewer images.
        """
        images = load_dataset(
            data,
            split,
            self.root,
            size=image.source_size,
            channels=image.channels,
            progress=self._progress,
        )
        return images if number is None else evenly_spaced(images, number)

    def training_data(self, data: str, image: ImageSettings, number: int | None) -> str | ImageSet:
        """Return what a run is trained on: a data set by name, or ``number`` images of it."""
        return data if number is None else self.load(data, "train", image, number)

    def fingerprint(
        self, data: str, split: str, image: ImageSettings, number: int | None = None
    ) -> str:
        """Return the hash of what `load` returns, see `fingerprint`; InputError as there."""
        key = (data, split, image.source_size, image.channels, number)
        if key not in self._fingerprints:
            try:
                self._fingerprints[key] = fingerprint(self.load(data, split, image, number))
            except InputError as error:
                self._fingerprints[key] = error
        found = self._fingerprints[key]
        if isinstance(found, InputError):
            raise InputError(str(found))
        return found

    def problem(
        self, data: str, split: str, image: ImageSettings, number: int | None = None
    ) -> str | None:
        """Return why a split cannot be loaded, or None."""
        try:
            self.fingerprint(data, split, image, number)
        except InputError as error:
            return str(error)
        return None


def evenly_spaced(images: ImageSet, number: int) -> ImageSet:
    """Return ``number`` images at equal distances, with all classes if the set is sorted by class.

    Raises
    ------
    InputError
        If there are fewer images.
    """
    if number > len(images):
        raise InputError(
            f"images must be at most {len(images)}, the size of {images.name!r}, got {number}"
        )
    rows = np.arange(number) * len(images) // number  # (number,)
    labels = None if images.labels is None else images.labels[rows]
    return ImageSet(images.images[rows], labels, images.classes, images.name, images.split)


def missing_note(data: str) -> str:
    """Return what a missing data set needs, without the paths of this machine, for the page."""
    if data not in BENCHMARKS:
        return f"Data missing: {Path(data).name}."
    about = BENCHMARKS[data]
    return f"Data missing: {data}. Needed: {about.files}. Source: {about.source}."
