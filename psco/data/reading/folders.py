"""Anybody's own pictures: a folder, an archive, a list of paths or a CSV file becomes a listing."""

from __future__ import annotations

import csv
import os
from collections.abc import Iterable, Sequence
from pathlib import Path

from psco.data.reading.listing import Listing, image_files, list_classes
from psco.data.reading.source import FolderSource, ZipSource, open_source
from psco.errors import InputError

PATH_COLUMNS = ("path", "file", "filename")
LABEL_COLUMNS = ("label", "class")


class ChosenFiles(FolderSource):
    """Some files, wherever they are.

    Parameters
    ----------
    path
        What relative names are relative to.
    files
        Names of the files.
    """

    def __init__(self, path: Path, files: Iterable[str]) -> None:
        super().__init__(path)
        self._files = sorted(set(files))

    def names(self) -> list[str]:
        """List the files, sorted."""
        return self._files


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
            f"{str(path)!r} is a file; give a folder of images, a .zip archive or a .csv file"
        )
    return list_folder(path)


def list_folder(path: Path) -> Listing:
    """List the images of a folder or a zip archive, at any depth.

    If all images lie in sub-folders, the topmost sub-folder of an image is its class; else there
    are no labels. A single folder that wraps the whole content of an archive does not count.

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
    _expect_files(Path(), files, "the list")
    return Listing(ChosenFiles(Path(), files), tuple(files), name="files")


def list_csv(path: Path) -> Listing:
    """List the images that a CSV file names, one a line, in this order.

    The first line names the columns: ``path`` (or ``file``, ``filename``), relative to the folder
    of the CSV file, and perhaps ``label`` (or ``class``). Commas, semicolons or tabs separate them.

    Raises
    ------
    InputError
        If the file is no such table, a line lacks its path or label, or an image is missing.
    """
    rows = _read_table(path)
    columns = {name.strip().lower(): place for place, name in enumerate(rows[0][1])}
    path_column = next((columns[name] for name in PATH_COLUMNS if name in columns), None)
    label_column = next((columns[name] for name in LABEL_COLUMNS if name in columns), None)
    if path_column is None:
        raise InputError(
            f"{str(path)!r} has the columns {', '.join(map(repr, rows[0][1]))}; expected one of "
            f"{', '.join(PATH_COLUMNS)} and, for labels, one of {', '.join(LABEL_COLUMNS)}"
        )
    files = [_cell(path, row, path_column, "path") for row in rows[1:]]
    if not files:
        raise InputError(f"{str(path)!r} names no images; every line after the first is one")
    _expect_files(path.parent, files, repr(str(path)))
    source = ChosenFiles(path.parent, files)
    if label_column is None:
        return Listing(source, tuple(files), name=path.stem)
    labels = [_cell(path, row, label_column, "label") for row in rows[1:]]
    return list_classes(source, files, labels, path.stem, "all")


def _read_table(path: Path) -> list[tuple[int, list[str]]]:
    """Read the lines of a CSV file that are not empty, with their numbers; at least one."""
    try:
        text = path.read_text(encoding="utf-8-sig")
        separator = max(",;\t", key=text.partition("\n")[0].count)
        reader = csv.reader(text.splitlines(), delimiter=separator, strict=True)
        rows = [(reader.line_num, row) for row in reader if any(cell.strip() for cell in row)]
    except OSError as error:
        raise InputError(f"cannot read {str(path)!r}: {error.strerror}") from None
    except (csv.Error, UnicodeDecodeError) as error:
        raise InputError(f"{str(path)!r} is no CSV file in UTF-8: {error}") from None
    if not rows:
        raise InputError(f"{str(path)!r} is empty; its first line names the columns")
    return rows


def _cell(path: Path, row: tuple[int, list[str]], place: int, what: str) -> str:
    line, cells = row
    text = cells[place].strip() if place < len(cells) else ""
    if not text:
        raise InputError(f"line {line} of {str(path)!r} has no {what}; fill it in or remove it")
    return text


def _expect_files(base: Path, files: Iterable[str], place: str) -> None:
    missing = [file for file in files if not (base / file).is_file()]
    if missing:
        more = f" and {len(missing) - 1} more" if len(missing) > 1 else ""
        raise InputError(f"{place} names {missing[0]!r}{more}, and there is no such file")
