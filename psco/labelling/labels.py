"""The labels of a session as a state that entries of the journal change; pure, without files.

An entry is a JSON object. Its ``do`` is one of

``set``     ``labels`` maps pictures to ``[class, predicted, confirmed]``, or to null for no label
``rename``  the class ``old`` is now called ``new``; if ``new`` exists already, the two are merged
``undo``    the last change that is not undone is taken back
``redo``    the last change that was taken back is made again
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from psco.classifier.model import UNKNOWN
from psco.errors import InputError, PscoError, and_more, quoted

# A class may become a folder, so no class has a slash in its name, and these cannot be classes.
NONE_OF_THESE = "/none of these"
NOT_USABLE = "/not usable"
STATES = (NONE_OF_THESE, NOT_USABLE)
_LONGEST = 100  # characters of a class name


class Label(NamedTuple):
    """What a person said about a picture.

    Parameters
    ----------
    name
        The class, `NONE_OF_THESE` or `NOT_USABLE`.
    predicted
        The class that was predicted when the label was given; None if there was no prediction.
    confirmed
        Whether the label was given by confirming the prediction.
    """

    name: str
    predicted: str | None = None
    confirmed: bool = False


class _Change(NamedTuple):
    labels: dict[str, tuple[Label | None, Label | None]]  # before and after, by picture
    classes: tuple[list[str], list[str]]  # before and after


class Labels:
    """The labels of pictures, which are known by name, with undo and redo.

    Parameters
    ----------
    given
        Labels to begin with, which no undo takes away.

    Attributes
    ----------
    given
        The labels by picture, in the order in which they were given.
    classes
        The classes that have pictures, in the order of their first use.
    revision
        Number of entries so far.
    """

    def __init__(self, given: Mapping[str, Label] | None = None) -> None:
        self.given = dict(given or {})
        self.classes = list(dict.fromkeys(label.name for label in self.given.values()))
        self.revision = 0
        self._done: list[_Change] = []
        self._undone: list[_Change] = []

    @property
    def can_undo(self) -> bool:
        """Whether there is a change to take back."""
        return bool(self._done)

    @property
    def can_redo(self) -> bool:
        """Whether there is a change to make again."""
        return bool(self._undone)

    def apply(self, entry: Mapping[str, Any]) -> None:
        """Apply an entry.

        Raises
        ------
        ValueError
            If it is not an entry as described above; nothing is changed then.
        """
        try:
            self._apply(entry)
        except (KeyError, TypeError, AttributeError, IndexError, ValueError) as error:
            raise ValueError(f"not an entry: {error}") from None
        self.revision += 1

    def replay(self, entries: Iterable[Mapping[str, Any]], journal: Path) -> None:
        """Apply the entries of a journal; PscoError if one of them is not an entry."""
        for number, entry in enumerate(entries, start=2):  # after the header
            try:
                self.apply(entry)
            except ValueError as error:
                raise PscoError(
                    f"line {number} of {quoted(journal)} is damaged: {error}; remove this line to "
                    f"go on without its labels"
                ) from None

    def _apply(self, entry: Mapping[str, Any]) -> None:
        match entry["do"]:
            case "set":
                new = {picture: _read(value) for picture, value in entry["labels"].items()}
                self._make(new, self.classes)
            case "rename":
                old, name = entry["old"], _class(entry["new"])
                renamed = [name if each == old else each for each in self.classes]
                moved = {
                    picture: label._replace(name=name, predicted=_renamed(label, old, name))
                    for picture, label in self.given.items()
                    if label.name == old
                }
                self._make(moved, list(dict.fromkeys(renamed)))
            case "undo":
                change = self._done.pop()
                self._restore({p: before for p, (before, _) in change.labels.items()})
                self.classes = change.classes[0]
                self._undone.append(change)
            case "redo":
                change = self._undone.pop()
                self._restore({p: after for p, (_, after) in change.labels.items()})
                self.classes = change.classes[1]
                self._done.append(change)
            case other:
                raise ValueError(f"it does {other!r}")

    def _make(self, new: Mapping[str, Label | None], classes: list[str]) -> None:
        labels = {picture: (self.given.get(picture), label) for picture, label in new.items()}
        before = self.classes
        self._restore(new)
        used = {label.name for label in self.given.values()}
        named = [label.name for label in new.values() if label is not None]
        order = [name for name in dict.fromkeys([*classes, *named]) if name not in STATES]
        self.classes = [name for name in order if name in used]
        self._done.append(_Change(labels, (before, self.classes)))
        self._undone.clear()

    def _restore(self, labels: Mapping[str, Label | None]) -> None:
        for picture, label in labels.items():
            if label is None:
                self.given.pop(picture, None)
            else:
                self.given[picture] = label


def set_entry(labels: Mapping[str, Label | None]) -> dict[str, Any]:
    """Return the entry that gives pictures these labels; None takes a label away."""
    plain = {name: None if label is None else list(label) for name, label in labels.items()}
    return {"do": "set", "labels": plain}


def check_class(name: str) -> str:
    """Return the name of a class without spaces around it; states are returned as they are.

    Raises
    ------
    InputError
        If it cannot be the name of a class, and of a folder.
    """
    if name in STATES:
        return name
    clean = name.strip()
    if not clean or len(clean) > _LONGEST or not clean.isprintable():
        raise InputError(
            f"a class needs a name of 1 to {_LONGEST} printable characters, got {quoted(name)}"
        )
    if "/" in clean or "\\" in clean or clean.startswith("."):
        raise InputError(
            f"classes become folders, so no name starts with a dot or holds a slash, got "
            f"{quoted(name)}"
        )
    if clean == UNKNOWN:
        raise InputError(
            f"{UNKNOWN!r} marks pictures of no class and cannot be a class; choose another name"
        )
    return clean


def require_class(name: str, classes: list[str]) -> None:
    """Raise InputError unless ``name`` is one of the classes."""
    if name not in classes:
        known = and_more(classes, 8) if classes else "none yet"
        raise InputError(f"there is no class {quoted(name)}; the classes are {known}")


def _read(value: list[Any] | None) -> Label | None:
    """Return the label in an entry, which may come from a file that someone else wrote."""
    if value is None:
        return None
    name, predicted, confirmed = value
    return Label(_class(name), None if predicted is None else _class(predicted), bool(confirmed))


def _class(name: str) -> str:
    if check_class(name) != name:
        raise ValueError(f"{name!r} is not the name of a class")
    return name


def _renamed(label: Label, old: str, new: str) -> str | None:
    return new if label.predicted == old else label.predicted
