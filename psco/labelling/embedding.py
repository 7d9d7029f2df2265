"""Embeddings of a folder of pictures; what the cache holds is not computed again."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from psco.classifier.images import BATCH, choose_device, embedder_on, shrink
from psco.data.duplicates import fingerprint
from psco.data.reading.decode import decode_image
from psco.data.reading.pool import each_file
from psco.data.reading.source import FolderSource
from psco.data.reading.undecodable import reason
from psco.errors import InputError, PscoError
from psco.evaluation.embed import Encoder
from psco.evaluation.rules import Embeddings
from psco.labelling.cache import (
    DIGESTS,
    EmbeddingCache,
    Place,
    Stamps,
    network_folder,
    read_arrays,
)

Progress = Callable[[int, int], None]
_IN_MEMORY = ("support", "query", "fingerprints")


@dataclass(frozen=True)
class Pictures:
    """The embedded pictures of a folder, known by number.

    Parameters
    ----------
    support, query
        (n, d) float32 of unit length; zeros for broken pictures. One tensor if they are equal.
    fingerprints
        (n, 256) float32, see `fingerprint`; zeros for broken pictures.
    sizes
        (n,) bytes of the files.
    broken
        Numbers of the pictures that cannot be decoded, and why.
    places
        Where the cache holds each picture; None for broken ones. What is rarely needed stays
        there.
    """

    support: Tensor
    query: Tensor
    fingerprints: np.ndarray
    sizes: np.ndarray
    broken: dict[int, str]
    places: list[Place | None]

    def __len__(self) -> int:
        return len(self.places)

    @property
    def intact(self) -> np.ndarray:
        """Numbers of the pictures that are not broken, ascending."""
        return np.array([i for i, place in enumerate(self.places) if place is not None], dtype=int)

    def complete(self, numbers: Sequence[int]) -> tuple[Embeddings, np.ndarray]:
        """Return the embeddings (m,) and thumbnails (m, 32, 32, C) of intact pictures.

        Raises
        ------
        PscoError
            If they are no longer in the cache.
        """
        names = ("features", "support", "query", "thumbnails")
        columns: dict[str, list[np.ndarray]] = {name: [] for name in names}
        opened: dict[Path, dict[str, np.ndarray] | None] = {}
        for place in (self.places[number] for number in numbers):
            path, row = place or (Path(), 0)
            if path not in opened:
                opened[path] = read_arrays(path, names)
            arrays = opened[path]
            if arrays is None:
                raise PscoError(f"the cache no longer holds {path}; open the session again")
            for name in names:
                columns[name].append(arrays[name][row])
        stacked = {name: np.stack(column) for name, column in columns.items()}
        features, support, query = (torch.from_numpy(stacked[name]) for name in names[:3])
        return Embeddings(features, support, query), stacked["thumbnails"]


def embed_pictures(
    encoder: Encoder,
    folder: Path,
    names: Sequence[str],
    *,
    device: str = "auto",
    progress: Progress | None = None,
) -> Pictures:
    """Embed the pictures of a folder; each batch of 256 is in the cache as soon as it is done.

    Parameters
    ----------
    encoder
        The network.
    folder, names
        The folder, and the files in it.
    device
        See `choose_device`.
    progress
        Called with the numbers of pictures done and of all pictures.

    Raises
    ------
    InputError
        If the method has no features before it adapts to a task.
    """
    if not encoder.method.has_features:
        raise InputError(
            f"a network of {encoder.recipe.method.name!r} has no features before it adapts to a "
            f"task; take a run of another method"
        )
    cache = EmbeddingCache(network_folder(encoder))
    while True:
        digests, broken = _fill(cache, encoder, folder, names, device, progress or _ignore)
        places = [cache.places.get(digests.get(name, b"")) for name in names]
        arrays = _gather(places)
        if arrays is not None:
            break
        cache = EmbeddingCache(cache.folder)  # without the damaged file, which was removed
    support, query = torch.from_numpy(arrays["support"]), torch.from_numpy(arrays["query"])
    return Pictures(
        support=support,
        query=support if torch.equal(support, query) else query,
        fingerprints=arrays["fingerprints"],
        sizes=np.array([_size(folder / name) for name in names], dtype=np.int64),
        broken={i: broken[name] for i, name in enumerate(names) if places[i] is None},
        places=places,
    )


class _Decoded(NamedTuple):
    digest: bytes
    pixels: np.ndarray | None  # None if the cache holds this content


def _fill(
    cache: EmbeddingCache,
    encoder: Encoder,
    folder: Path,
    names: Sequence[str],
    device: str,
    progress: Progress,
) -> tuple[dict[str, bytes], dict[str, str]]:
    """Embed what the cache lacks; return the hash of each file, and what is wrong with others."""
    stamps = Stamps(cache.folder, folder)
    known = {name: stamps.digest(name) for name in names}
    digests = {name: digest for name, digest in known.items() if digest in cache.places}
    broken: dict[str, str] = {}
    todo = [name for name in names if name not in digests]
    done = len(digests)
    progress(done, len(names))
    try:
        results = _decode(encoder, folder, todo, cache)
        while batch := list(islice(results, BATCH)):
            new: dict[bytes, np.ndarray] = {}
            for name, result in batch:
                if isinstance(result, InputError):
                    broken[name] = reason(result)
                    continue
                digests[name] = result.digest
                stamps.note(name, result.digest)
                if result.pixels is not None:
                    new[result.digest] = result.pixels
            if new:
                cache.add(_embed(encoder, device, new))
            done += len(batch)
            progress(done, len(names))
    finally:
        stamps.write()
    return {name: digest for name, digest in digests.items() if digest is not None}, broken


def _decode(
    encoder: Encoder, folder: Path, names: Sequence[str], cache: EmbeddingCache
) -> Iterator[tuple[str, _Decoded | InputError]]:
    image = encoder.recipe.image

    def work(content: bytes, name: str) -> _Decoded:
        digest = hashlib.sha256(content).digest()
        if digest in cache.places:
            return _Decoded(digest, None)
        pixels = decode_image(content, image.source_size, image.channels, name=name)
        return _Decoded(digest, pixels)

    results = each_file(FolderSource(folder), names, work, title="embed", progress=False)
    return zip(names, results, strict=True)


def _embed(encoder: Encoder, device: str, new: dict[bytes, np.ndarray]) -> dict[str, np.ndarray]:
    images = np.stack(list(new.values()))
    with embedder_on(choose_device(device), encoder) as embed:
        embedded = embed(images)
    return {
        DIGESTS: np.stack([np.frombuffer(digest, dtype=np.uint8) for digest in new]),
        "features": embedded.features.numpy(),
        "support": embedded.support.numpy(),
        "query": embedded.query.numpy(),
        "fingerprints": np.stack([fingerprint(image) for image in images]),
        "thumbnails": shrink(images),
    }


def _gather(places: Sequence[Place | None]) -> dict[str, np.ndarray] | None:
    """Return the arrays (n, ...) of all places, zeros where there is none; None if damaged."""
    rows_of: dict[Path, list[tuple[int, int]]] = {}
    for number, place in enumerate(places):
        if place is not None:
            rows_of.setdefault(place[0], []).append((number, place[1]))
    whole: dict[str, np.ndarray] = {}
    for path, pairs in rows_of.items():
        arrays = read_arrays(path, _IN_MEMORY)
        if arrays is None:
            return None
        numbers, rows = map(list, zip(*pairs, strict=True))
        for name, array in arrays.items():
            if name not in whole:
                whole[name] = np.zeros((len(places), array.shape[1]), dtype=np.float32)
            whole[name][numbers] = array[rows]
    empty = np.zeros((len(places), 1), dtype=np.float32)  # if all pictures are broken
    return {name: whole.get(name, empty) for name in _IN_MEMORY}


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return 0


def _ignore(_done: int, _total: int) -> None:
    """Report no progress."""
