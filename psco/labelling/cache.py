"""The cache of embeddings: a folder per network, with files of up to 256 pictures each.

A picture is known by the hash of its content, so it may be renamed, or occur in another folder. A
second table remembers the content of every file of a folder by its size and time, so that unchanged
files are not even read.
"""

from __future__ import annotations

import hashlib
import json
import zipfile
from collections.abc import Sequence
from pathlib import Path
from typing import TypeAlias

import numpy as np

from psco.evaluation.embed import Encoder
from psco.files.atomic import atomic_path
from psco.files.cache import cache_dir
from psco.training.checkpoint import model_weights

Place: TypeAlias = tuple[Path, int]  # a file of the cache, and a row in it
DIGESTS = "digests"
_FORMAT = 1


def network_folder(encoder: Encoder) -> Path:
    """Return the folder for all that has the same weights, images and views at test."""
    recipe = encoder.recipe
    text = recipe.model_dump_json(include={"image", "backbone", "heads", "method", "views"})
    digest = hashlib.sha256(f"{_FORMAT}|{text}".encode())
    for name, tensor in sorted(model_weights(encoder.method).items()):
        digest.update(f"{name}|{tuple(tensor.shape)}|{tensor.dtype}".encode())
        digest.update(tensor.contiguous().numpy().tobytes())
    return cache_dir() / "embeddings" / digest.hexdigest()[:32]


class EmbeddingCache:
    """The files of one network.

    Parameters
    ----------
    folder
        From `network_folder`.

    Attributes
    ----------
    places
        For each content, by its hash, where its embedding is.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.places: dict[bytes, Place] = {}
        for path in sorted(folder.glob("*.npz")):
            arrays = read_arrays(path, (DIGESTS,))
            if arrays is not None:
                self._note(path, arrays[DIGESTS])

    def add(self, arrays: dict[str, np.ndarray]) -> None:
        """Write a file with one row per content; ``digests`` are the hashes (b, 32) uint8."""
        name = hashlib.sha256(arrays[DIGESTS].tobytes()).hexdigest()[:32]
        path = self.folder / f"{name}.npz"
        with atomic_path(path) as aside, aside.open("wb") as file:
            np.savez(file, **arrays)  # type: ignore[arg-type]  # numpy's stub
        self._note(path, arrays[DIGESTS])

    def _note(self, path: Path, digests: np.ndarray) -> None:
        for row, digest in enumerate(digests):
            self.places[digest.tobytes()] = (path, row)


def read_arrays(path: Path, names: Sequence[str]) -> dict[str, np.ndarray] | None:
    """Read arrays of a file of the cache; a damaged file is removed, and None returned."""
    try:
        with np.load(path, allow_pickle=False) as file:
            return {name: file[name] for name in names}
    except (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile):
        path.unlink(missing_ok=True)
        return None


class Stamps:
    """The content of the files of a folder by their sizes and times, as of the last embedding.

    Parameters
    ----------
    cache
        Folder of a network.
    folder
        Folder of the pictures.
    """

    def __init__(self, cache: Path, folder: Path) -> None:
        self._folder = folder
        key = hashlib.sha256(str(folder.resolve()).encode(errors="surrogateescape"))
        self._path = cache / f"stamps-{key.hexdigest()[:32]}.json"
        self._known: dict[str, list[str]] = {}
        try:
            known = json.loads(self._path.read_text())
            self._known = {name: [stamp, digest] for name, (stamp, digest) in known.items()}
        except (OSError, ValueError, TypeError, AttributeError):  # none yet, or damaged
            pass

    def digest(self, name: str) -> bytes | None:
        """Return the hash of a file that has not changed; None if it is not known."""
        stamp, digest = self._known.get(name, ("", ""))
        return bytes.fromhex(digest) if stamp and stamp == self._stamp(name) else None

    def note(self, name: str, digest: bytes) -> None:
        """Remember the hash of a file."""
        self._known[name] = [self._stamp(name), digest.hex()]

    def write(self) -> None:
        """Write the table, whole or not at all."""
        with atomic_path(self._path) as aside:
            aside.write_text(json.dumps(self._known))

    def _stamp(self, name: str) -> str:
        try:
            about = (self._folder / name).stat()
        except OSError:
            return ""
        return f"{about.st_size} {about.st_mtime_ns}"
