"""Labels as files: reading and writing tables, merging those of several people, class folders."""

from __future__ import annotations

import csv
import os
import posixpath
import shutil
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Literal, NamedTuple

from psco.classifier.results import open_csv, safe_cell
from psco.data.reading.folders import read_path_column
from psco.errors import InputError, PscoError, quoted
from psco.files.atomic import atomic_path
from psco.labelling.journal import NAME, read_entries
from psco.labelling.labels import STATES, Label, Labels, check_class
from psco.labelling.live import Predictions

How = Literal["copy", "link", "move"]
_PLACE: dict[How, Callable[[Path, Path], object]] = {
    "copy": shutil.copy2,
    "link": os.link,
    "move": shutil.move,
}


class LabelRow(NamedTuple):
    """A line of a table of labels.

    Parameters
    ----------
    path
        The picture; in the file, relative to the folder of the file.
    label
        Its class.
    source
        ``labelled``, ``confirmed`` or ``predicted``.
    probability
        Of a prediction, else None.
    """

    path: str
    label: str
    source: str = "labelled"
    probability: float | None = None


class Conflict(NamedTuple):
    """A picture that several files label differently: its name, and the label in each file."""

    picture: str
    labels: dict[str, str]


class Merged(NamedTuple):
    """Labels by picture that no file contradicts, and the conflicts."""

    labels: dict[str, str]
    conflicts: list[Conflict]


def label_rows(
    names: Sequence[str], given: Mapping[int, Label], predictions: Predictions | None = None
) -> list[LabelRow]:
    """Return the lines of a table of labels, in the order of the pictures.

    Parameters
    ----------
    names, given
        The pictures, and labels by number. Only classes are written.
    predictions
        For the pictures without a label, unless they are unknown; None to leave them out.
    """
    rows = []
    for number, name in enumerate(names):
        label = given.get(number)
        if label is not None and label.name not in STATES:
            rows.append(LabelRow(name, label.name, "confirmed" if label.confirmed else "labelled"))
        elif label is None and predictions is not None and not predictions.unknown[number]:
            guess = predictions.name(number)
            if guess is not None:
                probability = round(float(predictions.probability[number]), 6)
                rows.append(LabelRow(name, guess, "predicted", probability))
    return rows


def write_labels(path: Path, folder: Path, rows: Iterable[LabelRow], *, raw: bool = False) -> None:
    """Write a CSV file that `psco fit` can read, whole or not at all.

    Parameters
    ----------
    path
        The file.
    folder
        Folder that the paths of the rows refer to.
    rows
        The labels.
    raw
        Whether text is written as it is; see `safe_cell`. Paths need no apostrophe: they start
        with ``./`` where they could be taken for a formula.
    """
    base = os.path.relpath(folder.resolve(), path.parent.resolve()).replace(os.sep, "/")
    with atomic_path(path) as aside, open_csv(aside) as file:
        writer = csv.writer(file)
        writer.writerow(LabelRow._fields)
        for row in rows:
            place = posixpath.normpath(posixpath.join(base, row.path))
            place = place if safe_cell(place) == place else f"./{place}"
            label = row.label if raw else safe_cell(row.label)
            writer.writerow(row._replace(path=place, label=label))


def read_labels(path: str | Path, folder: Path, names: Iterable[str]) -> dict[str, str]:
    """Read the labels of pictures from a CSV file, or from the folder of a session.

    Parameters
    ----------
    path
        A CSV file with the columns path and label. Paths are relative to the folder of the file or
        to that of the pictures. Or the folder of a session, which may be open elsewhere.
    folder, names
        Folder of the pictures, and the files in it.

    Raises
    ------
    InputError
        If the file is not such a table, or names a picture that is not in the folder, twice with
        different labels, or with a label that cannot be a class.
    """
    table, known = Path(path), set(names)
    if table.is_dir():
        kept = stored_labels(table)
        return {name: label.name for name, label in kept.given.items() if name in known}
    found: dict[str, str] = {}
    for cell, label in _pairs(table):
        name = _name_in(folder, table.parent, cell)
        if name not in known:
            raise InputError(
                f"{quoted(table)} labels {quoted(cell)}, which is not a picture in {quoted(folder)}"
            )
        if found.setdefault(name, label) != label:
            raise InputError(
                f"{quoted(table)} labels {quoted(cell)} twice, as {quoted(found[name])} and as "
                f"{quoted(label)}; remove one line"
            )
    return found


def merge_labels(files: Sequence[str | Path], folder: str | Path, names: Iterable[str]) -> Merged:
    """Merge the labels that several people gave to the pictures of a folder.

    Parameters
    ----------
    files
        CSV files or sessions, see `read_labels`.
    folder, names
        The folder, and the pictures in it.
    """
    known = list(names)
    given: dict[str, dict[str, str]] = {}
    for file in files:
        for name, label in read_labels(file, Path(folder), known).items():
            given.setdefault(name, {})[str(file)] = label
    agreed = {n: next(iter(by.values())) for n, by in given.items() if len(set(by.values())) == 1}
    conflicts = [Conflict(n, by) for n, by in sorted(given.items()) if n not in agreed]
    return Merged(agreed, conflicts)


def stored_labels(session: Path) -> Labels:
    """Return the labels in the folder of a session, without opening it for writing.

    Raises
    ------
    InputError
        If it is not the folder of a session.
    PscoError
        If the journal is damaged.
    """
    try:
        entries, _ = read_entries(session / NAME)
    except OSError as error:
        raise InputError(
            f"{quoted(session)} is not the folder of a session: {error.strerror}; pass one, or a "
            f".csv file"
        ) from None
    labels = Labels()
    labels.replay(entries, session / NAME)
    return labels


def write_folders(path: Path, folder: Path, labels: Mapping[str, str], how: How = "copy") -> None:
    """Write a folder with a sub-folder per class, whole or not at all.

    Below its class, a picture keeps its name, with the folders in it.

    Parameters
    ----------
    path
        The new folder; it must not exist, or be empty.
    folder, labels
        Folder of the pictures, and the class of each.
    how
        ``copy`` copies the files, ``link`` makes hard links, which take no space, and ``move``
        takes the files out of the folder of the pictures.

    Raises
    ------
    InputError
        If the folder has content, or ``how`` is another word.
    PscoError
        If a file cannot be copied, linked or moved; all is as before then.
    """
    if not labels:
        raise InputError("no picture has a class yet; label some first")
    place_files(path, folder, {name: f"{label}/{name}" for name, label in labels.items()}, how)


def place_files(path: Path, folder: Path, names: Mapping[str, str], how: How = "copy") -> None:
    """Write a folder with files of another one under new names, whole or not at all.

    Parameters and errors are those of `write_folders`; ``names`` maps old names to new ones.
    """
    if how not in _PLACE:
        raise InputError(f"how must be one of {', '.join(_PLACE)}, not {quoted(how)}")
    if path.is_file() or (path.is_dir() and any(path.iterdir())):
        raise InputError(f"{quoted(path)} exists and is not an empty folder; choose another")
    aside = path.with_name(f".{path.name}.{os.getpid()}.part")
    done: list[tuple[Path, Path]] = []
    try:
        aside.mkdir(parents=True)
        for old, new in names.items():
            source, target = folder / old, aside / new
            target.parent.mkdir(parents=True, exist_ok=True)
            _PLACE[how](source, target)
            done.append((source, target))
        if path.is_dir():
            path.rmdir()
        aside.rename(path)
    except OSError as error:
        if how == "move":
            for source, target in done:
                shutil.move(target, source)
        shutil.rmtree(aside, ignore_errors=True)
        raise PscoError(
            f"cannot {how} pictures to {quoted(path)}: {error.strerror}; nothing was changed"
        ) from None


def _pairs(table: Path) -> list[tuple[str, str]]:
    cells, labels = read_path_column(table)
    if labels is None:
        raise InputError(f"{quoted(table)} has no column label; add one")
    classes = [check_class(_without_apostrophe(label)) for label in labels]
    return list(zip(cells, classes, strict=True))


def _without_apostrophe(text: str) -> str:
    """Undo `safe_cell`."""
    return text[1:] if text[:1] == "'" and safe_cell(text[1:]) != text[1:] else text


def _name_in(folder: Path, base: Path, cell: str) -> str:
    """Return the name of a picture in a folder; the cell itself if it is elsewhere."""
    plain = posixpath.normpath(cell.replace("\\", "/") if not (base / cell).exists() else cell)
    if (folder / plain).is_file():
        return plain
    try:
        return (base / plain).resolve().relative_to(folder.resolve()).as_posix()
    except ValueError:
        return cell
