"""The files of an image set, before any of them is decoded."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from psco.data.reading.decode import EXTENSIONS
from psco.data.reading.source import Source
from psco.data.reading.walk import skipped_note
from psco.errors import InputError, quoted
from psco.progress import warn


@dataclass(frozen=True)
class Listing:
    """Image files of a source, with labels where they are known.

    Parameters
    ----------
    source
        Where the files are.
    files
        Their names in the source.
    labels
        (n,) int64 indices into ``classes``, or None.
    classes
        Class names; empty without labels.
    name, split
        Name of the data set and of the split, for messages and results.
    """

    source: Source
    files: tuple[str, ...]
    labels: np.ndarray | None = None
    classes: tuple[str, ...] = ()
    name: str = "images"
    split: str = "all"

    def __len__(self) -> int:
        return len(self.files)

    def file_name(self, number: int) -> str:
        """Return the name of a file, for messages."""
        return self.files[number]

    def content(self, number: int) -> bytes:
        """Read a file; InputError if that fails."""
        return self.source.read(self.files[number])


def list_classes(
    source: Source, files: list[str], names: list[str], name: str, split: str
) -> Listing:
    """Return a labelled listing: ``names[i]`` is the class of ``files[i]``; classes are sorted."""
    classes = sorted(set(names))
    number = {text: index for index, text in enumerate(classes)}
    labels = np.array([number[text] for text in names], dtype=np.int64)
    return Listing(source, tuple(files), labels, tuple(classes), name, split)


def image_names(source: Source) -> list[str]:
    """List the image files of a source by their extensions; warn about what is skipped."""
    names, skipped = source.scan()
    if skipped:
        warn(f"in {quoted(source.path)}, {skipped_note(skipped)}")
    return [name for name in names if name.lower().endswith(EXTENSIONS)]


def image_files(source: Source) -> list[str]:
    """List the image files of a source by their extensions.

    Raises
    ------
    InputError
        If there are none.
    """
    files = image_names(source)
    if not files:
        raise InputError(
            f"no images in {quoted(source.path)}; looked for {' '.join(EXTENSIONS)} at any depth"
        )
    return files
