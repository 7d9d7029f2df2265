"""What a session is left with: a table, class folders, a classifier and a page, in one folder."""

from __future__ import annotations

from pathlib import Path
from typing import Any, get_args

from psco.classifier import FewShotClassifier
from psco.errors import InputError, quoted
from psco.export.page import write_page
from psco.labelling import Labelling
from psco.labelling.files import How

CSV, CLASSIFIER, FOLDERS, PAGE = "labels.csv", "classifier.psco", "classes", "page.html"
_DOWNLOADS = ("csv", "classifier", "page")


class Exports:
    """Files for the person who labelled; a page cannot choose where they are written.

    Parameters
    ----------
    session
        The session.
    folder
        Where to write; created when something is written.
    """

    def __init__(self, session: Labelling, folder: Path) -> None:
        self._session = session
        self.folder = folder

    def write(self, what: str, *, predicted: bool = False, how: str = "copy") -> dict[str, Any]:
        """Write one of ``csv``, ``classifier``, ``page`` and ``folders``; return where it is.

        Parameters
        ----------
        what
            What to write. Files replace those of before; class folders get a new name.
        predicted
            Write predictions too; a classifier and a page need none.
        how
            For folders: copy, link or move.

        Raises
        ------
        InputError
            If there is not enough labelled, the page cannot run the network, or ``what`` or
            ``how`` are other words.
        """
        if what == "csv":
            path = self.folder / CSV
            self.folder.mkdir(parents=True, exist_ok=True)
            self._session.write_csv(path, predicted=predicted)
        elif what in ("classifier", "page"):
            path = self.folder / CLASSIFIER
            self.folder.mkdir(parents=True, exist_ok=True)
            self._session.write_classifier(path)
            if what == "page":
                path, classifier = self.folder / PAGE, FewShotClassifier.load(path)
                write_page(classifier, path, self._session.folder.resolve().name)
        elif what == "folders":
            way = next((each for each in get_args(How) if each == how), None)
            if way is None:
                raise InputError(f"how is {', '.join(get_args(How))}, not {quoted(how)}")
            path = self._new_folder()
            self.folder.mkdir(parents=True, exist_ok=True)
            self._session.write_folders(path, way, predicted=predicted)
        else:
            raise InputError(f"what is csv, classifier, page or folders, not {quoted(what)}")
        return {"path": str(path), "pictures": len(self._session.rows(predicted=predicted))}

    def read(self, what: str, *, predicted: bool = False) -> tuple[str, bytes]:
        """Return the name and content of a file as it is now, to download.

        The file is written first, so what is downloaded is also on the disk.

        Raises
        ------
        InputError
            As in `write`, or if ``what`` is not a file.
        """
        if what not in _DOWNLOADS:
            allowed = ", ".join(_DOWNLOADS)
            raise InputError(f"what can be downloaded is {allowed}, not {quoted(what)}")
        path = Path(self.write(what, predicted=predicted)["path"])
        return path.name, path.read_bytes()

    def _new_folder(self) -> Path:
        path, number = self.folder / FOLDERS, 1
        while path.exists():
            number += 1
            path = self.folder / f"{FOLDERS}-{number}"
        return path
