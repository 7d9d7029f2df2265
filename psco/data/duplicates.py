"""Near-duplicates: pairs of images that are almost the same, by fingerprints or by embeddings."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np

from psco.errors import InputError

# Correlation of the fingerprints of two copies. Copies that were compressed again, resized, or
# changed in brightness and contrast are above it; two drawings of one character are not.
SIMILAR = 0.97
_SIDE = 16  # pixels of a fingerprint
_CHUNK = 1024  # rows compared at a time


NO_FINGERPRINT = np.zeros(_SIDE * _SIDE, dtype=np.float32)  # similar to nothing


class Pair(NamedTuple):
    """Two images by their numbers, ``first`` < ``second``, and their similarity in [0, 1]."""

    first: int
    second: int
    similarity: float


def fingerprint(image: np.ndarray) -> np.ndarray:
    """Return a small, blurred copy of an image, such that dot products are correlations.

    Parameters
    ----------
    image
        (H, W, C) uint8.

    Returns
    -------
    np.ndarray
        (256,) float32 of mean 0 and unit length; zeros for an image of a single colour.
    """
    grey = image.astype(np.float32).mean(axis=2)  # (H, W)
    rows, columns = (_area_weights(length) for length in grey.shape)
    small = rows @ grey @ columns.T  # (16, 16)
    centred = (small - small.mean()).ravel()
    length = np.linalg.norm(centred)
    # A length below one grey level is the rounding noise of a blank image.
    unit: np.ndarray = centred / length if length > 1.0 else np.zeros_like(centred)
    return unit


def near_duplicates(
    vectors: np.ndarray, threshold: float = SIMILAR, limit: int = 100_000
) -> list[Pair]:
    """Return all pairs of vectors with a cosine of at least ``threshold``, most similar first.

    Vectors whose cosine is c are √(2 − 2c) apart, and their projections on any direction are not
    further apart. The vectors are therefore sorted along their first principal component, and each
    is compared only with those in reach.

    Parameters
    ----------
    vectors
        (n, d) of unit length: fingerprints or embeddings. Zeros are similar to nothing.
    threshold
        In (0, 1].
    limit
        Largest number of pairs returned; the most similar ones are kept.

    Raises
    ------
    InputError
        If the threshold is not in (0, 1].
    """
    if not 0 < threshold <= 1:
        raise InputError(f"the similarity of near-duplicates must be in (0, 1], got {threshold}")
    unit = np.ascontiguousarray(vectors, dtype=np.float32)
    if len(unit) < 2:
        return []
    projected = unit @ _first_direction(unit)  # (n,)
    order = np.argsort(projected, kind="stable")
    unit, projected = unit[order], projected[order]
    slack = 1e-4  # of rounding, in cosines
    reach = np.sqrt(2 - 2 * threshold + 2 * slack)
    pairs: list[Pair] = []
    for begin in range(0, len(unit), _CHUNK):
        end = min(begin + _CHUNK, len(unit))
        last = int(np.searchsorted(projected, projected[end - 1] + reach, side="right"))
        cosines = unit[begin:end] @ unit[begin:last].T  # (chunk, candidates)
        rows, columns = np.nonzero(np.triu(cosines >= threshold - 1e-6, k=1))
        found = np.minimum(cosines[rows, columns], 1.0).tolist()
        ends = np.sort(np.stack([order[begin + rows], order[begin + columns]]), axis=0).T.tolist()
        pairs += [Pair(a, b, c) for (a, b), c in zip(ends, found, strict=True)]
        if len(pairs) > 2 * limit:
            pairs = _most_similar(pairs, limit)
    return _most_similar(pairs, limit)


def near_duplicates_between(
    vectors: np.ndarray, others: np.ndarray, threshold: float = SIMILAR
) -> list[Pair]:
    """Return pairs (i, j) of a vector and one of ``others``, such as supports and queries.

    Parameters are those of `near_duplicates`; ``first`` counts in ``vectors`` (n, d) and
    ``second`` in ``others`` (m, d). Each of the others occurs at most once, with the most similar
    vector.
    """
    if not len(vectors) or not len(others):
        return []
    pairs = []
    for begin in range(0, len(others), _CHUNK):
        cosines = others[begin : begin + _CHUNK] @ vectors.T  # (chunk, n)
        nearest = cosines.argmax(axis=1)
        best = np.minimum(cosines[np.arange(len(nearest)), nearest], 1.0)
        for row in np.flatnonzero(best >= threshold - 1e-6).tolist():
            pairs.append(Pair(int(nearest[row]), begin + row, float(best[row])))
    return sorted(pairs, key=lambda pair: -pair.similarity)


def count_copies(images: Iterable[np.ndarray], groups: Sequence[object] | None = None) -> int:
    """Return how many images (H, W, C) have a near-duplicate among those of other groups.

    Parameters
    ----------
    images
        uint8, of any sizes.
    groups
        The group of each image; by default every image is its own.
    """
    pairs = near_duplicates(np.stack([fingerprint(image) for image in images]))
    if groups is not None:
        pairs = [pair for pair in pairs if groups[pair.first] != groups[pair.second]]
    return len({number for pair in pairs for number in (pair.first, pair.second)})


def duplicate_groups(pairs: Iterable[Pair]) -> list[tuple[int, ...]]:
    """Return the groups of images that pairs connect, directly or through others, sorted."""
    leader: dict[int, int] = {}

    def find(number: int) -> int:
        while leader.setdefault(number, number) != number:
            leader[number] = leader[leader[number]]
            number = leader[number]
        return number

    for pair in pairs:
        low, high = sorted((find(pair.first), find(pair.second)))
        leader[high] = low
    groups: dict[int, list[int]] = {}
    for number in sorted(leader):
        groups.setdefault(find(number), []).append(number)
    return [tuple(group) for _, group in sorted(groups.items())]


def graded_groups(pairs: Sequence[Pair]) -> list[tuple[tuple[int, ...], float]]:
    """Return the groups of `duplicate_groups`, the most similar first.

    With each group comes its lowest similarity in [0, 1] of two images that are a pair.
    """
    groups = duplicate_groups(pairs)
    group_of = {number: place for place, group in enumerate(groups) for number in group}
    lowest = [1.0] * len(groups)
    for pair in pairs:
        place = group_of[pair.first]
        lowest[place] = min(lowest[place], pair.similarity)
    return sorted(zip(groups, lowest, strict=True), key=lambda graded: -graded[1])


def _most_similar(pairs: list[Pair], limit: int) -> list[Pair]:
    return sorted(pairs, key=lambda pair: (-pair.similarity, pair.first, pair.second))[:limit]


def _first_direction(unit: np.ndarray) -> np.ndarray:
    """Return the direction (d,) of largest variance, by a few steps of the power method."""
    centre = unit.mean(axis=0)
    random = np.random.default_rng(0)
    direction: np.ndarray = random.standard_normal((unit.shape[1],), dtype=np.float32)
    for _ in range(8):
        moved = unit.T @ (unit @ direction) - len(unit) * centre * (centre @ direction)
        length = np.linalg.norm(moved)
        if length < 1e-12:  # all vectors are equal
            break
        direction = moved / length
    unit_direction: np.ndarray = direction / np.linalg.norm(direction)
    return unit_direction


def _area_weights(length: int) -> np.ndarray:
    """Return weights (16, length) that average a row of pixels over 16 equal intervals."""
    edges = np.linspace(0, length, _SIDE + 1)
    pixels = np.arange(length)
    low = np.maximum(edges[:-1, None], pixels)
    high = np.minimum(edges[1:, None], pixels + 1)
    overlap = np.maximum(high - low, 0)  # (16, length)
    weights: np.ndarray = (overlap / overlap.sum(axis=1, keepdims=True)).astype(np.float32)
    return weights
