"""Listings of a user's own images: a folder, a zip archive, a list of paths or a CSV file."""

from __future__ import annotations

import csv
import os
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path

from psco.data.reading.limits import current_limits
from psco.data.reading.listing import Listing, image_files, list_classes
from psco.data.reading.source import FolderSource, ZipSource, open_source
from psco.data.reading.walk import Scan, read_regular
from psco.errors import InputError, and_more, quoted

PATH_COLUMNS = ("path", "file", "filename")
LABEL_COLUMNS = ("label", "class")


class ChosenFiles(FolderSource):
    """Files that were named one by one, anywhere on the disk.

    Parameters
    ----------
    path
        Folder to which relative names refer.
    files
        Names of the files.
    """

    def __init__(self, path: Path, files: Iterable[str]) -> None:
        super().__init__(path)
        self._limits = replace(self._limits, follow_links=True)
        self._files = sorted(set(files))

    def scan(self) -> Scan:
        """List the files, sorted; nothing is skipped."""
        return Scan(self._files, {})


def list_images(path: Path) -> Listing:
    """List the images of a folder, a zip archive or a CSV file.

    Raises
    ------
    InputError
        If it is something else, cannot be read, or names no images.
    """
    if path.suffix.lower() == ".csv":
        return list_csv(path)
    if path.is_file() and path.suffix.lower() != ".zip":
        raise InputError(
            f"{quoted(path)} is a file; give a folder of images, a .zip archive or a .csv file"
        )
    return list_folder(path)


def list_folder(path: Path) -> Listing:
    """List the images of a folder or a zip archive, at any depth.

    If all images are in sub-folders, the topmost sub-folder of an image is its class; otherwise
    there are no labels. A single folder that wraps the whole content of an archive is ignored.

    Raises
    ------
    InputError
        If there is no such folder or archive, or no image in it.
    """
    source = open_source(path)
    files = image_files(source)
    name = path.resolve().name
    parts = [file.split("/") for file in files]
    if isinstance(source, ZipSource) and len({part[0] for part in parts}) == 1:
        parts = [part[1:] or part for part in parts]
    if any(len(part) == 1 for part in parts):
        return Listing(source, tuple(files), name=name)
    return list_classes(source, files, [part[0] for part in parts], name, "all")


def list_paths(paths: Sequence[str | os.PathLike[str]]) -> Listing:
    """List image files by their paths, in this order, without labels.

    Raises
    ------
    InputError
        If there are none, or one does not exist.
    """
    files = [os.fspath(path) for path in paths]
    if not files:
        raise InputError("the list of image files is empty")
    _check_exist(Path(), files, "the list of image files")
    return Listing(ChosenFiles(Path(), files), tuple(files), name="files")


def list_csv(path: Path) -> Listing:
    """List the images named by a CSV file, one per line, in this order.

    The first line names the columns: ``path`` (or ``file``, ``filename``), relative to the folder
    of the CSV file, and optionally ``label`` (or ``class``). They are separated by commas,
    semicolons or tabs. Paths may be written with ``/`` or, as on Windows, with backslashes.

    Raises
    ------
    InputError
        If the file is not such a table, a line lacks its path or label, or an image is missing.
    """
    cells, labels = read_path_column(path)
    files = [_with_slashes(path.parent, cell) for cell in cells]
    _check_exist(path.parent, files, quoted(path))
    source = ChosenFiles(path.parent, files)
    if labels is None:
        return Listing(source, tuple(files), name=path.stem)
    return list_classes(source, files, labels, path.stem, "all")


def read_path_column(path: Path) -> tuple[list[str], list[str] | None]:
    """Read the paths and, if there is such a column, the labels of a CSV file; see `list_csv`."""
    rows = _read_table(path)
    columns = {name.strip().lower(): place for place, name in enumerate(rows[0][1])}
    path_column = next((columns[name] for name in PATH_COLUMNS if name in columns), None)
    label_column = next((columns[name] for name in LABEL_COLUMNS if name in columns), None)
    if path_column is None:
        raise InputError(
            f"{quoted(path)} has the columns {and_more(rows[0][1], 8)}; it needs one of "
            f"{', '.join(PATH_COLUMNS)} and, for labels, one of {', '.join(LABEL_COLUMNS)}"
        )
    cells = [_cell(path, row, path_column, "path") for row in rows[1:]]
    if not cells:
        raise InputError(f"{quoted(path)} names no images; it needs a line for each image")
    if label_column is None:
        return cells, None
    return cells, [_cell(path, row, label_column, "label") for row in rows[1:]]


def csv_column(path: Path, name: str) -> list[str] | None:
    """Return the cells of a column of a CSV file, one per image; None if it has no such column."""
    rows = _read_table(path)
    columns = {title.strip().lower(): place for place, title in enumerate(rows[0][1])}
    place = columns.get(name.strip().lower())
    return None if place is None else [_cell(path, row, place, name) for row in rows[1:]]


def _read_table(path: Path) -> list[tuple[int, list[str]]]:
    """Read the non-empty lines of a CSV file with their line numbers; at least one."""
    try:
        text = read_regular(path, current_limits().file_bytes).decode("utf-8-sig")
        separator = max(",;\t", key=text.partition("\n")[0].count)
        reader = csv.reader(text.splitlines(), delimiter=separator, strict=True)
        rows = [(reader.line_num, row) for row in reader if any(cell.strip() for cell in row)]
    except (csv.Error, UnicodeDecodeError) as error:
        raise InputError(f"{quoted(path)} is not a CSV file in UTF-8: {error}") from None
    if not rows:
        raise InputError(f"{quoted(path)} is empty; its first line must name the columns")
    return rows


def _cell(path: Path, row: tuple[int, list[str]], place: int, what: str) -> str:
    line, cells = row
    text = cells[place].strip() if place < len(cells) else ""
    if not text:
        raise InputError(f"line {line} of {quoted(path)} has no {what}; add it or remove the line")
    return text


def _with_slashes(base: Path, name: str) -> str:
    """Return a name with its backslashes replaced, unless there is a file of exactly this name."""
    return name if "\\" not in name or _is_file(base / name) else name.replace("\\", "/")


def _check_exist(base: Path, files: Sequence[str], place: str) -> None:
    missing = [file for file in files if not _is_file(base / file)]
    if missing:
        raise InputError(f"{place} names {and_more(missing)}: no such file")


def _is_file(path: Path) -> bool:
    try:
        return path.is_file()
    except (OSError, ValueError):  # too long a name, or a null byte in it
        return False
