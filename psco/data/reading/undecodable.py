"""Image files that cannot be decoded: how many are allowed, and how they are reported."""

from __future__ import annotations

import unicodedata
from collections.abc import Mapping, Sequence
from pathlib import Path

from psco.data.reading.decode import DecodeError
from psco.errors import InputError, and_more, counted, printable, quoted
from psco.files.atomic import atomic_path
from psco.progress import warn

MAX_BAD = 0.01  # fraction of the images
_SHOWN = 5  # names in a warning


def reason(error: InputError) -> str:
    """Return what is wrong with a file, without its name where possible."""
    return error.reason if isinstance(error, DecodeError) else str(error)


def check_fraction(max_bad: float) -> None:
    """Raise InputError unless ``max_bad`` is in [0, 1]."""
    if not 0 <= max_bad <= 1:
        raise InputError(f"max_bad must be a fraction in [0, 1], not {max_bad}")


def exceeds_limit(bad: int, total: int, max_bad: float) -> bool:
    """Whether more than the allowed fraction of all files is undecodable, or all of them are."""
    return bad > max_bad * total or bad == total


def raise_if_too_many(
    bad: Mapping[str, str], files: Sequence[str], max_bad: float, place: str
) -> None:
    """Raise an error if too many files are undecodable.

    Parameters
    ----------
    bad
        The undecodable files and what is wrong with them.
    files
        All files.
    max_bad
        Fraction of them that may be undecodable.
    place
        Where they are.

    Raises
    ------
    InputError
        If more than this fraction is undecodable, or all files are.
    """
    number, total = sum(name in bad for name in files), len(files)
    if exceeds_limit(number, total, max_bad):
        raise too_many(number, total, next(iter(bad.items())), max_bad, place)


def too_many(
    number: int, total: int, first: tuple[str, str], max_bad: float, place: str
) -> InputError:
    """Return the error for too many undecodable files; it names the first one and its reason."""
    name, why = first
    if number == total:
        return InputError(
            f"no image in {quoted(place)} can be decoded; of {counted(total, 'file')}, the first "
            f"is {quoted(name)}: {why}"
        )
    return InputError(
        f"{number} of {counted(total, 'image')} in {quoted(place)} ({number / total:.2%}) cannot "
        f"be decoded, and {max_bad:.2%} are allowed; the first is {quoted(name)}: {why}; repair or "
        f"remove them, or raise --max-bad (max_bad= in Python)"
    )


def warn_skipped(bad: Mapping[str, str], total: int) -> None:
    """Print a warning about undecodable files, if there are any."""
    if bad:
        warn(
            f"{len(bad)} of {counted(total, 'image')} cannot be decoded and "
            f"{'is' if len(bad) == 1 else 'are'} skipped: {and_more(bad, _SHOWN)}"
        )


def write_bad_files(bad: Mapping[str, str], folder: Path) -> Path:
    """Write ``bad_files.txt`` into a folder: one line with path, tab and reason for each file."""
    target = folder / "bad_files.txt"
    lines = [f"{_one_line(name)}\t{printable(why)}\n" for name, why in bad.items()]
    with atomic_path(target) as temporary:
        # Names that are not Unicode are written with the bytes they have on disk.
        temporary.write_text("".join(lines), encoding="utf-8", errors="surrogateescape")
    return target


def _one_line(name: str) -> str:
    return "".join(repr(c)[1:-1] if unicodedata.category(c) == "Cc" else c for c in name)
