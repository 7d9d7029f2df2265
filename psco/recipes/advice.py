"""``psco data check``: what a folder of images contains and what training will do with it."""

from __future__ import annotations

import hashlib
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path, PurePosixPath
from statistics import median_low
from typing import Any, NamedTuple

import numpy as np

from psco.data.duplicates import NO_FINGERPRINT, fingerprint, graded_groups, near_duplicates
from psco.data.outliers import find_outliers
from psco.data.reading.decode import EXTENSIONS, DecodeError, Header, decode_image, probe_image
from psco.data.reading.folders import list_images
from psco.data.reading.listing import Listing
from psco.data.reading.pool import each_file
from psco.data.reading.shardpaths import are_shards
from psco.data.reading.shards import list_shards
from psco.data.reading.undecodable import (
    MAX_BAD,
    check_fraction,
    exceeds_limit,
    reason,
    write_bad_files,
)
from psco.errors import InputError, printable
from psco.recipes.choice import Choice, choose_recipe
from psco.recipes.recipe import Recipe, load_recipe

_SHOWN = 5  # bad files, copies and classes listed on a terminal


@dataclass(frozen=True)
class Check:
    """The findings about a folder, an archive or a CSV file.

    Parameters
    ----------
    path
        The folder, archive or file.
    images, size_bytes
        Number and total size of the image files, including bad ones.
    widths, heights
        Smallest, median and largest, in pixels; None if no file can be decoded.
    modes, formats
        Number of images by mode (``RGB``, ``L``, ...) and by format (``PNG``, ``JPEG``, ...).
    duplicates
        Groups of files with the same content.
    near_duplicates
        Groups of images that are almost the same, not counting files with the same content, the
        most similar first, and the lowest similarity in [0, 1] within each.
    outliers
        Images that look like no other one, the farthest first; see `find_outliers`.
    bad
        Files that cannot be decoded, and the reasons.
    classes
        Images per class, including bad ones; empty without labels.
    ignored
        Number of files that are not images, by the extension of their names.
    advice
        Sentences about what ``pretrain`` will do.
    """

    path: str
    images: int
    size_bytes: int
    widths: tuple[int, int, int] | None
    heights: tuple[int, int, int] | None
    modes: dict[str, int]
    formats: dict[str, int]
    duplicates: tuple[tuple[str, ...], ...]
    near_duplicates: tuple[tuple[tuple[str, ...], float], ...]
    outliers: tuple[str, ...]
    bad: dict[str, str]
    classes: dict[str, int]
    ignored: dict[str, int]
    advice: tuple[str, ...]

    def as_dict(self) -> dict[str, Any]:
        """Return the findings as plain values, for JSON."""
        return asdict(self)

    def lines(self) -> list[str]:
        """Return the findings as lines for a terminal."""
        lines = [f"{self.path}: {self.images} images, {self.size_bytes / 1e6:.1f} MB"]
        for side, sizes in {"width": self.widths, "height": self.heights}.items():
            if sizes is not None:
                least, median, most = sizes
                lines.append(f"{side}: {least} to {most} px, median {median}")
        for title, counts in {
            "modes": self.modes,
            "formats": self.formats,
            f"{len(self.classes)} classes": self.classes,
            "ignored": self.ignored,
        }.items():
            if counts:
                lines.append(f"{title}: {_shortened([f'{k} ({v})' for k, v in counts.items()])}")
        for group in self.duplicates[:_SHOWN]:
            lines.append(f"same content: {_shortened(group)}")
        if len(self.duplicates) > _SHOWN:
            lines.append(f"same content: {len(self.duplicates) - _SHOWN} more groups")
        for group, similarity in self.near_duplicates[:_SHOWN]:
            lines.append(f"almost the same ({similarity:.2f}): {_shortened(group)}")
        if len(self.near_duplicates) > _SHOWN:
            lines.append(f"almost the same: {len(self.near_duplicates) - _SHOWN} more groups")
        if self.outliers:
            lines.append(f"like no other: {_shortened(self.outliers)}")
        for name, why in list(self.bad.items())[:_SHOWN]:
            lines.append(f"cannot be decoded: {name}: {why}")
        if len(self.bad) > _SHOWN:
            lines.append(f"cannot be decoded: {len(self.bad) - _SHOWN} more")
        return [printable(line) for line in (*lines, *self.advice)]

    def write_bad_files(self, folder: Path) -> Path:
        """Write ``bad_files.txt`` into a folder: for each file a line with path, tab and reason."""
        return write_bad_files(self.bad, folder)


class _Finding(NamedTuple):
    """The finding about one file; ``problem`` is empty if it can be decoded."""

    name: str
    problem: str
    size_bytes: int = 0
    digest: bytes = b""
    header: Header = Header(0, 0, "", "")
    fingerprint: np.ndarray = NO_FINGERPRINT


def check_images(
    path: str | Path,
    *,
    recipe: str | Path | Recipe | None = None,
    max_bad: float = MAX_BAD,
    progress: bool = True,
) -> Check:
    """Decode every image once and report what is there.

    Parameters
    ----------
    path
        A folder, a zip archive, a CSV file or tar shards.
    recipe
        The recipe that ``pretrain`` will use; it determines the image size and the batch size. By
        default the one that `choose_recipe` chooses, which the advice then names.
    max_bad
        Fraction of undecodable files, in [0, 1], that ``pretrain`` may skip.
    progress
        Show a progress bar on stderr.

    Raises
    ------
    InputError
        If the path does not exist, or contains no image.
    """
    check_fraction(max_bad)
    is_sharded = are_shards(path)
    listing = list_shards(path, progress=progress) if is_sharded else list_images(Path(path))
    choice = choose_recipe(path) if recipe is None else Choice("")
    settings = load_recipe(choice.recipe if recipe is None else recipe)
    findings = _examine(listing, settings, progress)
    good = [finding for finding in findings if not finding.problem]
    names_by_digest = defaultdict(list)
    for finding in good:
        names_by_digest[finding.digest].append(finding.name)
    distinct = list({finding.digest: finding for finding in reversed(good)}.values())[::-1]
    others = {name for name in listing.source.names() if not name.lower().endswith(EXTENSIONS)}
    others.difference_update(listing.files)
    return Check(
        path=str(path),
        images=len(listing),
        size_bytes=sum(finding.size_bytes for finding in findings),
        widths=_range([finding.header.width for finding in good]),
        heights=_range([finding.header.height for finding in good]),
        modes=_counts(finding.header.mode for finding in good),
        formats=_counts(finding.header.format for finding in good),
        duplicates=tuple(tuple(names) for names in names_by_digest.values() if len(names) > 1),
        near_duplicates=tuple(_near_duplicates(distinct)),
        outliers=tuple(_outliers(distinct)),
        bad={finding.name: finding.problem for finding in findings if finding.problem},
        classes=_class_sizes(listing),
        ignored=_counts(PurePosixPath(n).suffix.lower() or "no extension" for n in others),
        advice=(
            *([f"{choice.note[0].upper()}{choice.note[1:]}."] if choice.note else []),
            *_missing_decoders(findings),
            *_advice(listing, good, len(names_by_digest), settings, max_bad),
        ),
    )


def _examine(listing: Listing, settings: Recipe, progress: bool) -> list[_Finding]:
    size, channels = settings.image.source_size, settings.image.channels

    def examine_file(content: bytes, name: str) -> _Finding:
        digest = hashlib.sha256(content).digest()
        try:
            header = probe_image(content, name=name)
            pixels = decode_image(content, size, channels, name=name)
        except DecodeError as error:
            return _Finding(name, error.reason, len(content), digest)
        return _Finding(name, "", len(content), digest, header, fingerprint(pixels))

    results = each_file(
        listing.source, listing.files, examine_file, title="check images", progress=progress
    )
    return [
        _Finding(name, reason(result)) if isinstance(result, InputError) else result
        for name, result in zip(listing.files, results, strict=True)
    ]


def _missing_decoders(findings: list[_Finding]) -> list[str]:
    """Return how to read the images, such as HEIC, for which a decoder is not installed."""
    reasons = Counter(finding.problem for finding in findings if " images need " in finding.problem)
    return [f"{_count(number, 'file')}: {reason}." for reason, number in reasons.items()]


def _near_duplicates(findings: list[_Finding]) -> Iterator[tuple[tuple[str, ...], float]]:
    """Yield groups of images that are almost the same, with different contents."""
    pairs = near_duplicates(_fingerprints(findings))
    for group, similarity in graded_groups(pairs):
        yield tuple(findings[number].name for number in group), similarity


def _outliers(findings: list[_Finding]) -> Iterator[str]:
    """Yield the names of images that look like no other one."""
    for outlier in find_outliers(_fingerprints(findings)):
        yield findings[outlier.number].name


def _fingerprints(findings: list[_Finding]) -> np.ndarray:
    return np.stack([NO_FINGERPRINT, *(finding.fingerprint for finding in findings)])[1:]


def _advice(
    listing: Listing, good: list[_Finding], distinct: int, settings: Recipe, max_bad: float
) -> Iterator[str]:
    """Yield sentences about what ``pretrain`` will do with the images."""
    image, batch = settings.image, settings.train.batch_size
    total, number = len(listing), len(good)
    bad = total - number
    if exceeds_limit(bad, total, max_bad):
        yield (
            f"pretrain will stop: {bad} of {total} images ({bad / total:.2%}) cannot be decoded, "
            f"and at most {max_bad:.2%} may be skipped; repair or remove them, or raise --max-bad."
        )
        return
    kind = "grey" if image.channels == 1 else "RGB"
    yield (
        f"pretrain will use {number} images: the centre square of each, resized to "
        f"{image.source_size} x {image.source_size} px, in {kind}."
    )
    if bad:
        yield f"It will skip {_count(bad, 'undecodable image')}."
    if small := sum(min(finding.header[:2]) < image.source_size for finding in good):
        yield f"It will enlarge {_count(small, 'smaller image')}."
    if distinct < number:
        copies = _count(number - distinct, "file")
        yield f"It will use {copies} with the same content as another file."
    if batch <= number:
        per_epoch = "1 batch" if number // batch == 1 else f"{number // batch} batches"
        yield f"The batch size {batch} fits: {per_epoch} per epoch."
    else:
        yield (
            f"The batch size {batch} is larger than the data set, so pretrain will stop; "
            f"--set train.batch_size={max(2, number // 2)} fits."
        )
    if listing.labels is None:
        yield "There are no labels, and none are needed."
    else:
        yield f"Training ignores the labels ({len(listing.classes)} classes)."


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def _class_sizes(listing: Listing) -> dict[str, int]:
    if listing.labels is None:
        return {}
    sizes = np.bincount(listing.labels, minlength=len(listing.classes))
    return dict(zip(listing.classes, sizes.tolist(), strict=True))


def _range(values: Sequence[int]) -> tuple[int, int, int] | None:
    return (min(values), median_low(values), max(values)) if values else None


def _counts(values: Iterable[str]) -> dict[str, int]:
    """Return the number of each value, the most frequent first."""
    return dict(Counter(values).most_common())


def _shortened(words: Sequence[str]) -> str:
    more = f" and {len(words) - _SHOWN} more" if len(words) > _SHOWN else ""
    return ", ".join(words[:_SHOWN]) + more
