"""Pictures that cannot be used: how many are put up with, and how people hear of them."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from psco.data.reading.decode import DecodeError
from psco.errors import InputError
from psco.files.atomic import atomic_path

MAX_BAD = 0.01  # share of the pictures
_SHOWN = 5  # names in a warning


def reason(error: InputError) -> str:
    """Say what is wrong with a file, without its name where that is possible."""
    return error.reason if isinstance(error, DecodeError) else str(error)


def check_fraction(max_bad: float) -> None:
    """Refuse a share that is none.

    Raises
    ------
    InputError
        If it is not in [0, 1].
    """
    if not 0 <= max_bad <= 1:
        raise InputError(f"max_bad is a share from 0 to 1, such as {MAX_BAD}, not {max_bad}")


def exceeds_limit(bad: int, total: int, max_bad: float) -> bool:
    """Say whether so many bad files of all exceed the share, or leave nothing."""
    return bad > max_bad * total or bad == total


def raise_if_too_many(
    bad: Mapping[str, str], files: Sequence[str], max_bad: float, place: str
) -> None:
    """Stop if too many files are bad.

    Parameters
    ----------
    bad
        The bad files and what is wrong with them.
    files
        All files.
    max_bad
        Share of them that may be bad.
    place
        Where they are.

    Raises
    ------
    InputError
        If more than this share is bad, or all are.
    """
    number, total = sum(name in bad for name in files), len(files)
    if exceeds_limit(number, total, max_bad):
        raise too_many(number, total, next(iter(bad.items())), max_bad, place)


def too_many(
    number: int, total: int, first: tuple[str, str], max_bad: float, place: str
) -> InputError:
    """Make the error for too many bad files, the first one with its reason among them."""
    name, why = first
    return InputError(
        f"{number} of {total} images in {place!r} ({number / total:.2%}) cannot be decoded, "
        f"allowed are {max_bad:.2%}; the first is {name!r}: {why}; repair or remove them, or "
        f"raise --max-bad"
    )


def warn(bad: Mapping[str, str], total: int) -> None:
    """Tell on stderr that files are skipped, if there are any."""
    if not bad:
        return
    names = ", ".join(map(repr, list(bad)[:_SHOWN]))
    more = f" and {len(bad) - _SHOWN} more" if len(bad) > _SHOWN else ""
    print(
        f"warning: {len(bad)} of {total} images cannot be decoded and are skipped: {names}{more}",
        file=sys.stderr,
    )


def write_bad_files(bad: Mapping[str, str], folder: Path) -> Path:
    """Write ``bad_files.txt`` into a folder, a line with path, tab and reason for each file."""
    target = folder / "bad_files.txt"
    lines = [f"{name}\t{' '.join(why.split())}\n" for name, why in bad.items()]
    with atomic_path(target) as aside:
        # Names that are not Unicode are written with the bytes they have on disk.
        aside.write_text("".join(lines), encoding="utf-8", errors="surrogateescape")
    return target
