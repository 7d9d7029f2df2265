"""A session that several pages share: changes with revisions, and what the pages ask for."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from psco.errors import InputError, PscoError, and_more, printable
from psco.labelling import Labelling
from psco.server.labelling.frames import CODES, encode_frame

_NEAR = 20  # pictures looked at for each that a group shows
_FIRST = 24  # suggestions that the page asks for first
_NAMES = {code: name for name, code in CODES.items()}


class StaleError(PscoError):
    """A change that was decided on before someone else's change of the same thing."""


class Desk:
    """One session for many pages.

    Every change carries the revision that its page showed. If a picture has changed since then, or
    the whole state for `undo`, `redo`, `rename` and `merge`, the change is refused: a page that is
    out of date never overwrites a label that it does not show.

    Parameters
    ----------
    session
        The session.
    on_progress
        Called with the numbers of pictures that are embedded and of all pictures.
    """

    def __init__(
        self, session: Labelling, on_progress: Callable[[int, int], None] | None = None
    ) -> None:
        self.session = session
        self._on_progress = on_progress
        self._lock = threading.RLock()
        # Revisions begin where the journal of earlier runs ends; older pages are out of date.
        self._changed = np.full(len(session.names), session.revision)
        self._frame: tuple[int, bytes] | None = None
        self._done, self._first, self._begun = 0, 0, time.monotonic()
        self._error, self._is_ready = "", False
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Embed the pictures in the background."""
        self._thread = threading.Thread(target=self._embed, daemon=True)
        self._thread.start()

    def _embed(self) -> None:
        try:
            self.session.embed(self._advance)
            self.session.suggest(_FIRST)  # clusters take seconds: not when the page asks
            self.session.clusters()
            self._is_ready = True
        except Exception as error:  # shown on the page; the terminal shows it as well
            self._error = printable(f"{error}")

    def _advance(self, done: int, total: int) -> None:
        if not self._done:
            self._first, self._begun = done, time.monotonic()
        self._done = done
        if self._on_progress is not None:
            self._on_progress(done, total)

    def progress(self) -> dict[str, Any]:
        """Return how far the embedding is, with the time left in seconds or None."""
        total, gained = len(self.session.names), self._done - self._first
        elapsed = time.monotonic() - self._begun
        return {
            "folder": self.session.folder.resolve().name,
            "ready": self._is_ready,
            "error": self._error,
            "done": self._done,
            "total": total,
            "seconds_left": elapsed * (total - self._done) / gained if gained else None,
        }

    def pictures(self) -> dict[str, Any]:
        """Return what never changes: the names of the pictures, and why some are broken."""
        # A file name need not be Unicode; the page shows such bytes as escapes.
        return {
            "folder": self.session.folder.resolve().name,
            "names": [printable(name) for name in self.session.names],
            "reasons": {str(number): why for number, why in self.session.broken.items()},
        }

    def frame(self, since: int = -1) -> bytes | None:
        """Return the state as bytes, or None if it is still at the revision ``since``."""
        with self._lock:
            revision = self.session.revision
            if since == revision:
                return None
            if self._frame is None or self._frame[0] != revision:
                self._frame = revision, self._encode()
            return self._frame[1]

    def _encode(self) -> bytes:
        session = self.session
        head = {
            "revision": session.revision,
            "classes": session.classes,
            "can_undo": session.can_undo,
            "can_redo": session.can_redo,
        }
        return encode_frame(head, session.given, session.predictions(), session.broken)

    def act(self, change: dict[str, Any]) -> bytes:
        """Make a change and return the new state.

        Parameters
        ----------
        change
            ``revision``, which the page showed; ``do``, one of label, mark, confirm, clear, undo,
            redo, rename and merge; and its arguments.

        Raises
        ------
        StaleError
            If what it changes is newer than that revision.
        InputError
            If it cannot be made.
        """
        revision, do = _whole(change, "revision"), change.get("do")
        with self._lock:
            before = self.session.given
            if do in ("label", "mark", "confirm", "clear"):
                self._change_pictures(str(do), revision, change)
            else:
                self._change_all(do, revision, change)
            after = self.session.given
            changed = [n for n in before | after if before.get(n) != after.get(n)]
            self._changed[changed] = self.session.revision
            state = self.frame()
            assert state is not None
            return state

    def _change_pictures(self, do: str, revision: int, change: dict[str, Any]) -> None:
        numbers = _numbers(change, len(self.session.names))
        newer = [n for n in numbers if self._changed[n] > revision]
        if newer:
            names = and_more([self.session.names[n] for n in newer])
            raise StaleError(f"another page has labelled {names} meanwhile; look again")
        if do == "label":
            self.session.label(self._readable(numbers), _text(change, "name"))
        elif do == "mark":
            if change.get("code") not in _NAMES:
                raise InputError(f"the code of a mark is -2 or -3, not {change.get('code')!r}")
            self.session.label(self._readable(numbers), _NAMES[change["code"]])
        elif do == "confirm":
            self.session.confirm(numbers)
        else:
            self.session.clear(numbers)

    def _readable(self, numbers: list[int]) -> list[int]:
        readable = [number for number in numbers if number not in self.session.broken]
        if not readable:
            raise InputError("a picture that cannot be read has no label; repair the file first")
        return readable

    def _change_all(self, do: object, revision: int, change: dict[str, Any]) -> None:
        if revision != self.session.revision:
            raise StaleError("another page has made changes meanwhile; look again")
        if do == "undo":
            self.session.undo()
        elif do == "redo":
            self.session.redo()
        elif do == "rename":
            self.session.rename(_text(change, "old"), _text(change, "new"))
        elif do == "merge":
            self.session.merge(_text(change, "old"), _text(change, "new"))
        else:
            raise InputError(f"there is no change {do!r}")

    def group(self, number: int, count: int) -> dict[str, Any]:
        """Return the other pictures of a picture's cluster, the most similar first."""
        clusters = self.session.clusters()
        if not 0 <= number < len(clusters):
            raise InputError(f"there is no picture {number}; there are {len(clusters)}, from 0")
        size = int((clusters == clusters[number]).sum())
        near = self.session.similar(number, _NEAR * count)
        numbers = [each.number for each in near if clusters[each.number] == clusters[number]]
        return {"size": size, "numbers": numbers[:count]}

    def accuracy(self) -> dict[str, Any]:
        """Return the estimates of the accuracy, None where there are too few labels."""
        revision, found = self.session.revision, self.session.accuracy()

        def plain(part: Any) -> dict[str, Any] | None:
            if not part.total:
                return None
            return {"accuracy": part.accuracy, "interval": part.interval, "count": part.total}

        return {
            "revision": revision,
            "left_out": plain(found.left_out),
            "confirmed": plain(found.judged),
            "history": [list(point) for point in found.history],
        }


def _whole(change: dict[str, Any], name: str) -> int:
    value = change.get(name)
    if not isinstance(value, int) or isinstance(value, bool):
        raise InputError(f"{name} must be a whole number, got {value!r}")
    return value


def _text(change: dict[str, Any], name: str) -> str:
    value = change.get(name)
    if not isinstance(value, str) or value in CODES:
        raise InputError(f"{name} must be the name of a class, got {value!r}")
    return value


def _numbers(change: dict[str, Any], pictures: int) -> list[int]:
    numbers: Sequence[Any] = change.get("numbers") or []
    if not isinstance(numbers, list) or not numbers:
        raise InputError("numbers must be a list of pictures, and not empty")
    for number in numbers:
        if not isinstance(number, int) or isinstance(number, bool) or not 0 <= number < pictures:
            raise InputError(f"there is no picture {number!r}; there are {pictures}, from 0")
    return numbers
