"""Which classes make up a split: the paper's lists, or a user's own in JSON or CSV."""

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

from psco.data.reading.listing import Listing
from psco.errors import InputError, unknown_name

ALIASES = {"base": "train", "novel": "test"}  # the names of the cross-domain literature


@cache
def paper_splits() -> dict[str, dict[str, list[str]]]:
    """Give the classes of CUB, Cars, Places and Plantae that the paper's experiments use.

    Returns
    -------
    dict
        For each data set the classes of ``train``, ``val`` and ``test``, called base, val and
        novel there: numbers for CUB and Plantae, names for Cars and Places.
    """
    table = json.loads(files("psco.data.sets").joinpath("splits.json").read_text(encoding="utf-8"))
    return {
        data: {split: [str(name) for name in names] for split, names in splits.items()}
        for data, splits in table.items()
    }


def class_key(name: str) -> str:
    """Reduce a class name to what copies of a data set agree on.

    The number where the name begins with one, as in ``001.Black_footed_Albatross``; else letters
    and digits only, since a folder cannot be called ``Ram C/V Cargo Van Minivan 2012``.
    """
    numbered = re.match(r"0*(\d+)(?:\.|$)", name)
    return numbered[1] if numbered else re.sub(r"[\W_]+", "", name).casefold()


def read_class_list(path: str | Path, split: str) -> list[str]:
    """Read the classes of a split from a user's own list.

    Parameters
    ----------
    path
        A ``.json`` file: a list of class names, or an object with such a list for each split. Else
        a CSV file with a column ``label`` and, if it tells splits apart, a column ``split``.
    split
        ``train``, ``val`` or ``test``; the list may say ``base`` and ``novel`` instead.

    Raises
    ------
    InputError
        If the file cannot be read or names no class of the split.
    """
    file = Path(path).expanduser()
    try:
        content = file.read_bytes()
    except OSError as error:
        raise InputError(f"cannot read the class list {str(path)!r}: {error.strerror}") from None
    if file.suffix.lower() == ".json":
        names = _json_classes(content, split, str(path))
    else:
        rows = read_csv(content, ["label"], str(path))
        names = [row["label"] for row in rows if _canonical(row.get("split", split)) == split]
    if not names:
        raise InputError(f"the class list {str(path)!r} names no class of the split {split!r}")
    return list(dict.fromkeys(names))


def resolve_split(data: str, split: str, known: Sequence[str]) -> str:
    """Give a split its one name: ``train`` for base, ``test`` for novel.

    Parameters
    ----------
    data
        The data set, for the error.
    split
        As the user calls it.
    known
        The splits of the data set.

    Raises
    ------
    InputError
        If the data set has no such split.
    """
    settled = _canonical(split)
    if settled not in known:
        raise unknown_name(f"split of {data}", split, known)
    return settled


def enough_classes(listing: Listing) -> Listing:
    """Give back a listing that few-shot tasks can be made of; InputError if it is not one."""
    if len(listing.classes) < 2:
        raise InputError(
            f"{listing.name} ({listing.split}) in {str(listing.source.path)!r} has {len(listing)} "
            f"images of {len(listing.classes)} classes; tasks need two classes or more"
        )
    return listing


def read_csv(content: bytes, columns: Sequence[str], where: str) -> list[dict[str, str]]:
    """Read a CSV file with a header.

    Parameters
    ----------
    content
        The bytes of the file, UTF-8.
    columns
        Columns that must be there; others may be.
    where
        The name of the file, for errors.

    Returns
    -------
    list of dict
        The rows; every one has a value in each of ``columns``.

    Raises
    ------
    InputError
        If the text is no CSV, a column is missing or a row is cut short.
    """
    try:
        text = content.decode("utf-8-sig")
        reader = csv.DictReader(io.StringIO(text, newline=""), strict=True)
        header = [name.strip() for name in reader.fieldnames or ()]
        reader.fieldnames = header
        rows: list[dict[str, Any]] = list(reader)
    except (UnicodeDecodeError, csv.Error) as error:
        raise InputError(f"{where!r} is no CSV file ({error}); get it anew") from None
    for column in columns:
        if column not in header:
            raise InputError(
                f"{where!r} has no column {column!r}; it has {', '.join(header)[:200]}"
            )
        for number, row in enumerate(rows, start=2):
            if row[column] is None:
                raise InputError(f"row {number} of {where!r} is cut short: no {column!r}")
    return [{key: value or "" for key, value in row.items() if key is not None} for row in rows]


def _json_classes(content: bytes, split: str, where: str) -> list[str]:
    try:
        value = json.loads(content)
    except (ValueError, RecursionError) as error:
        raise InputError(f"the class list {where!r} is no JSON file ({error})") from None
    if isinstance(value, dict):
        value = {_canonical(str(name)): names for name, names in value.items()}.get(split, [])
    if not isinstance(value, list) or not all(isinstance(name, (str, int)) for name in value):
        raise InputError(
            f"the class list {where!r} must be a list of class names, or an object of such lists "
            "by split"
        )
    return [str(name) for name in value]


def _canonical(split: str) -> str:
    return ALIASES.get(split, split)
