"""Which files make up an image set, before any of them is decoded."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from psco.data.reading.source import Source
from psco.errors import InputError

EXTENSIONS = (".png", ".jpg", ".jpeg", ".webp", ".tif", ".tiff", ".bmp", ".gif", ".ppm", ".pgm")


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
        For reports.
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
        """Name a file, for messages."""
        return self.files[number]

    def content(self, number: int) -> bytes:
        """Read a file; InputError if that fails."""
        return self.source.read(self.files[number])


def list_classes(
    source: Source, files: list[str], names: list[str], name: str, split: str
) -> Listing:
    """Make a labelled listing: ``names[i]`` is the class of ``files[i]``; classes are sorted."""
    classes = sorted(set(names))
    number = {text: index for index, text in enumerate(classes)}
    labels = np.array([number[text] for text in names], dtype=np.int64)
    return Listing(source, tuple(files), labels, tuple(classes), name, split)


def image_files(source: Source) -> list[str]:
    """List the image files of a source by their endings; none is an error."""
    files = [name for name in source.names() if name.lower().endswith(EXTENSIONS)]
    if not files:
        raise InputError(
            f"no images in {str(source.path)!r}; looked for {' '.join(EXTENSIONS)} at any depth"
        )
    return files
