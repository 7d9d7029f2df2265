"""The classes of a split: the lists of the paper, or a user's list in JSON or CSV."""

from __future__ import annotations

import csv
import io
import json
import re
from collections.abc import Sequence
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any

from psco.data.reading.limits import current_limits
from psco.data.reading.listing import Listing
from psco.data.reading.walk import read_regular
from psco.errors import InputError, and_more, counted, quoted, unknown_name

ALIASES = {"base": "train", "novel": "test"}  # names used in the cross-domain literature


@cache
def paper_splits() -> dict[str, dict[str, list[str]]]:
    """Return the classes of CUB, Cars, Places and Plantae used in the paper.

    Returns
    -------
    dict
        For each data set the classes of ``train``, ``val`` and ``test`` (base, val and novel in
        the paper): numbers for CUB and Plantae, names for Cars and Places.
    """
    table = json.loads(files("psco.data.sets").joinpath("splits.json").read_text(encoding="utf-8"))
    return {
        data: {split: [str(name) for name in names] for split, names in splits.items()}
        for data, splits in table.items()
    }


def class_key(name: str) -> str:
    """Return the part of a class name that all copies of a data set agree on.

    This is the number where the name begins with one, as in ``001.Black_footed_Albatross``; else
    its letters and digits, since a folder cannot be named ``Ram C/V Cargo Van Minivan 2012``.
    """
    numbered = re.match(r"0*(\d+)(?:\.|$)", name)
    return numbered[1] if numbered else re.sub(r"[\W_]+", "", name).casefold()


def read_class_list(path: str | Path, split: str) -> list[str]:
    """Read the classes of a split from a user's file.

    Parameters
    ----------
    path
        A ``.json`` file with a list of class names, or an object with such a list for each split;
        or a CSV file with a column ``label`` and optionally a column ``split``.
    split
        ``train``, ``val`` or ``test``; the file may use ``base`` and ``novel`` instead.

    Raises
    ------
    InputError
        If the file cannot be read or names no class of the split.
    """
    file = Path(path).expanduser()
    content = read_regular(file, current_limits().file_bytes)
    if file.suffix.lower() == ".json":
        names = _json_classes(content, split, str(path))
    else:
        rows = read_csv(content, ["label"], str(path))
        names = [row["label"] for row in rows if _canonical(row.get("split", split)) == split]
    if not names:
        raise InputError(f"the class list {quoted(path)} has no class of the split {split!r}")
    return list(dict.fromkeys(names))


def resolve_split(data: str, split: str, known: Sequence[str]) -> str:
    """Return the canonical name of a split: ``train`` for base, ``test`` for novel.

    Parameters
    ----------
    data
        Name of the data set, for the error.
    split
        The name given by the user.
    known
        The splits of the data set.

    Raises
    ------
    InputError
        If the data set has no such split.
    """
    resolved = _canonical(split)
    if resolved not in known:
        raise unknown_name(f"split of {data}", split, known)
    return resolved


def check_enough_classes(listing: Listing) -> Listing:
    """Return the listing; InputError if it has fewer than two classes, too few for tasks."""
    if len(listing.classes) < 2:
        raise InputError(
            f"{listing.name} ({listing.split}) in {quoted(listing.source.path)} has "
            f"{counted(len(listing), 'image')} of {counted(len(listing.classes), 'class')}; tasks "
            f"need two classes or more"
        )
    return listing


def read_csv(content: bytes, columns: Sequence[str], where: str) -> list[dict[str, str]]:
    """Read a CSV file with a header.

    Parameters
    ----------
    content
        The bytes of the file, UTF-8.
    columns
        Required columns; others are allowed.
    where
        The name of the file, for errors.

    Returns
    -------
    list of dict
        The rows; each has a value in all of ``columns``.

    Raises
    ------
    InputError
        If the text is not CSV, a column is missing or a row is cut short.
    """
    try:
        text = content.decode("utf-8-sig")
        reader = csv.DictReader(io.StringIO(text, newline=""), strict=True)
        header = [name.strip() for name in reader.fieldnames or ()]
        reader.fieldnames = header
        rows: list[dict[str, Any]] = list(reader)
    except (UnicodeDecodeError, csv.Error) as error:
        raise InputError(f"{quoted(where)} is not a CSV file ({error}); get another copy") from None
    for column in columns:
        if column not in header:
            raise InputError(
                f"{quoted(where)} has no column {column!r}; it has {and_more(header, 8)}"
            )
        for number, row in enumerate(rows, start=2):
            if row[column] is None:
                raise InputError(f"row {number} of {quoted(where)} is cut short: no {column!r}")
    return [{key: value or "" for key, value in row.items() if key is not None} for row in rows]


def _json_classes(content: bytes, split: str, where: str) -> list[str]:
    try:
        value = json.loads(content)
    except (ValueError, RecursionError) as error:
        raise InputError(f"the class list {quoted(where)} is not a JSON file ({error})") from None
    if isinstance(value, dict):
        value = {_canonical(str(name)): names for name, names in value.items()}.get(split, [])
    if not isinstance(value, list) or not all(isinstance(name, (str, int)) for name in value):
        raise InputError(
            f"the class list {quoted(where)} must be a list of class names, or an object with such "
            f"a list for each split"
        )
    return [str(name) for name in value]


def _canonical(split: str) -> str:
    return ALIASES.get(split, split)
