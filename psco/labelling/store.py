"""The labels of the pictures of a folder, known by number, and the journal that keeps them."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

from psco.errors import InputError, counted, quoted
from psco.labelling.journal import Journal
from psco.labelling.labels import Label, Labels, check_class, require_class, set_entry

Store = TypeVar("Store", bound="LabelStore")


class LabelStore:
    """Labels of pictures; every change is on the disk before the method returns.

    Methods may be called from several threads.

    Parameters
    ----------
    names
        File names of the pictures.
    session
        Folder of the journal.
    supports
        Classes of the supports of a classifier, which count as labels.

    Raises
    ------
    InputError
        If the session is open in another process.
    PscoError
        If the journal is damaged.
    """

    def __init__(self, names: list[str], session: Path, supports: Sequence[str] = ()) -> None:
        self.names = names
        self.session = session
        self._number = {name: number for number, name in enumerate(names)}
        for place in range(len(supports)):
            self._number[_support_name(place)] = len(names) + place
        self._lock = threading.RLock()
        self._labels = Labels({_support_name(i): Label(text) for i, text in enumerate(supports)})
        self._journal = Journal(session)
        with self._closed_on_failure():
            self._labels.replay(self._journal.entries, self._journal.path)

    def __enter__(self: Store) -> Store:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Release the session, so that it can be opened again."""
        self._journal.close()

    @property
    def revision(self) -> int:
        """Number of changes so far."""
        return self._labels.revision

    @property
    def classes(self) -> list[str]:
        """The classes, in the order of their first use."""
        return list(self._labels.classes)

    @property
    def given(self) -> dict[int, Label]:
        """The labels by number of the picture, in the order in which they were given."""
        with self._lock:
            pairs = [(self._number.get(n, -1), label) for n, label in self._labels.given.items()]
        return {number: label for number, label in pairs if 0 <= number < len(self.names)}

    @property
    def can_undo(self) -> bool:
        """Whether `undo` would change something."""
        return self._labels.can_undo

    @property
    def can_redo(self) -> bool:
        """Whether `redo` would change something."""
        return self._labels.can_redo

    def label(self, numbers: Iterable[int], name: str) -> int:
        """Label pictures with a class, `NONE_OF_THESE` or `NOT_USABLE`; return the new revision.

        Raises
        ------
        InputError
            If there is no such picture, or the name cannot be that of a class.
        PscoError
            If the label cannot be written to the disk; nothing is changed then.
        """
        chosen, clean = self._checked(numbers), check_class(name)
        with self._lock:
            predicted = self._predicted(chosen)
            pairs = zip(chosen, predicted, strict=True)
            return self._write({self.names[n]: Label(clean, text) for n, text in pairs})

    def clear(self, numbers: Iterable[int]) -> int:
        """Take the labels of pictures away; return the new revision."""
        chosen = self._checked(numbers)
        with self._lock:
            labelled = [self.names[n] for n in chosen if self.names[n] in self._labels.given]
            return self._write(dict.fromkeys(labelled))

    def undo(self) -> int:
        """Take the last change back, if there is one; return the new revision."""
        with self._lock:
            return self._change({"do": "undo"}) if self.can_undo else self.revision

    def redo(self) -> int:
        """Make the change again that was taken back last; return the new revision."""
        with self._lock:
            return self._change({"do": "redo"}) if self.can_redo else self.revision

    def rename(self, old: str, new: str) -> int:
        """Rename a class; return the new revision.

        Raises
        ------
        InputError
            If there is no class ``old``, or there is a class ``new`` already.
        """
        clean = check_class(new)
        with self._lock:
            require_class(old, self._labels.classes)
            if clean in self._labels.classes:
                raise InputError(f"there is a class {quoted(clean)} already; merge the two instead")
            return self._change({"do": "rename", "old": old, "new": clean})

    def merge(self, old: str, new: str) -> int:
        """Move the pictures of the class ``old`` to the class ``new``; return the new revision."""
        with self._lock:
            require_class(old, self._labels.classes)
            require_class(new, self._labels.classes)
            if old == new:
                raise InputError(f"a class cannot be merged with itself, got {quoted(old)} twice")
            return self._change({"do": "rename", "old": old, "new": new})

    @contextmanager
    def _closed_on_failure(self) -> Iterator[None]:
        """Release the session if the block, a part of opening it, fails."""
        try:
            yield
        except BaseException:
            self.close()
            raise

    def _predicted(self, numbers: Sequence[int]) -> list[str | None]:
        """Return the predicted class of each picture, None where there is none."""
        return [None] * len(numbers)

    def _checked(self, numbers: Iterable[int]) -> list[int]:
        chosen = list(dict.fromkeys(int(number) for number in numbers))
        for number in chosen:
            if not 0 <= number < len(self.names):
                raise InputError(
                    f"there is no picture {number}; the folder has "
                    f"{counted(len(self.names), 'picture')}, from 0"
                )
        return chosen

    def _write(self, labels: Mapping[str, Label | None]) -> int:
        return self._change(set_entry(labels)) if labels else self.revision

    def _change(self, entry: dict[str, Any]) -> int:
        self._journal.append(entry)  # first, since a failure must leave all as it was
        self._labels.apply(entry)
        return self.revision


def _support_name(place: int) -> str:
    return f"//{place}"  # no relative path starts so
