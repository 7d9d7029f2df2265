"""The data sets of a queue: each is looked for once, and a missing one is remembered."""

from __future__ import annotations

from pathlib import Path

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
        self._fingerprints: dict[tuple[str, str, int, int], str | InputError] = {}

    def load(self, data: str, split: str, image: ImageSettings) -> ImageSet:
        """Load a split; InputError if the data set is missing."""
        return load_dataset(
            data,
            split,
            self.root,
            size=image.source_size,
            channels=image.channels,
            progress=self._progress,
        )

    def fingerprint(self, data: str, split: str, image: ImageSettings) -> str:
        """Return the hash of a split, see `fingerprint`; InputError if the data set is missing."""
        key = (data, split, image.source_size, image.channels)
        if key not in self._fingerprints:
            try:
                self._fingerprints[key] = fingerprint(self.load(data, split, image))
            except InputError as error:
                self._fingerprints[key] = error
        found = self._fingerprints[key]
        if isinstance(found, InputError):
            raise InputError(str(found))
        return found

    def problem(self, data: str, split: str, image: ImageSettings) -> str | None:
        """Return why a split cannot be loaded, or None."""
        try:
            self.fingerprint(data, split, image)
        except InputError as error:
            return str(error)
        return None


def missing_note(data: str) -> str:
    """Return what a missing data set needs, without the paths of this machine, for the page."""
    if data not in BENCHMARKS:
        return f"Data missing: {Path(data).name}."
    about = BENCHMARKS[data]
    return f"Data missing: {data}. Needed: {about.files}. Source: {about.source}."
