"""Labels with undo and redo: any sequence of changes, against a plain dictionary."""

from __future__ import annotations

import shutil
import tempfile
import threading
from pathlib import Path

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from psco.errors import InputError, PscoError
from psco.labelling.journal import NAME, Journal
from psco.labelling.labels import NONE_OF_THESE, NOT_USABLE, Labels
from psco.labelling.store import LabelStore

PICTURES = [f"{number}.png" for number in range(6)]
NUMBERS = st.lists(st.integers(0, 5), min_size=1, max_size=4)
CLASSES = st.sampled_from(["oak", "elm", "ash", "=1+1", "ö"])


def labels_of(store):
    return {number: label.name for number, label in store.given.items()}


class Model:
    """Whole copies of the state, and which of them is the present one."""

    def __init__(self):
        self.states = [({}, [])]
        self.present = 0

    @property
    def labels(self):
        return self.states[self.present][0]

    @property
    def classes(self):
        return self.states[self.present][1]

    def change(self, labels, classes=None):
        order = [*(self.classes if classes is None else classes), *labels.values()]
        used = [name for name in dict.fromkeys(order) if name in labels.values()]
        classes = [name for name in used if name not in (NONE_OF_THESE, NOT_USABLE)]
        del self.states[self.present + 1 :]
        self.states.append((labels, classes))
        self.present += 1

    def copy(self):
        other = Model()
        other.states, other.present = list(self.states), self.present
        return other


class Sessions(RuleBasedStateMachine):
    def __init__(self):
        super().__init__()
        self.folder = Path(tempfile.mkdtemp())
        self.store = LabelStore(PICTURES, self.folder)
        self.model = Model()
        self.past = {self.length(): self.model.copy()}  # by the length of the journal

    def length(self):
        return (self.folder / NAME).stat().st_size

    def teardown(self):
        self.store.close()
        shutil.rmtree(self.folder)

    def changed(self, revision):
        assert revision == self.store.revision
        self.past[self.length()] = self.model.copy()

    @rule(numbers=NUMBERS, name=CLASSES | st.sampled_from([NONE_OF_THESE, NOT_USABLE]))
    def label(self, numbers, name):
        self.model.change({**self.model.labels, **dict.fromkeys(numbers, name)})
        self.changed(self.store.label(numbers, name))

    @rule(numbers=NUMBERS)
    def clear(self, numbers):
        if set(numbers) & set(self.model.labels):
            left = {n: name for n, name in self.model.labels.items() if n not in numbers}
            self.model.change(left)
        self.changed(self.store.clear(numbers))

    @rule()
    def undo(self):
        self.model.present = max(0, self.model.present - 1)
        self.changed(self.store.undo())

    @rule()
    def redo(self):
        self.model.present = min(len(self.model.states) - 1, self.model.present + 1)
        self.changed(self.store.redo())

    @rule(old=CLASSES, new=CLASSES, merges=st.booleans())
    def rename_or_merge(self, old, new, merges):
        has_new = new in self.model.classes
        change = self.store.merge if merges else self.store.rename
        if old not in self.model.classes or has_new != merges or (merges and old == new):
            before = self.length()
            with pytest.raises(InputError):
                change(old, new)
            assert self.length() == before
            return
        labels = {n: new if name == old else name for n, name in self.model.labels.items()}
        self.model.change(labels, [new if name == old else name for name in self.model.classes])
        self.changed(change(old, new))

    @rule()
    def open_again(self):
        self.store.close()
        self.store = LabelStore(PICTURES, self.folder)

    @precondition(lambda self: self.length() > min(self.past))
    @rule(data=st.data())
    def lose_the_end_of_the_journal(self, data):
        self.store.close()
        cut = data.draw(st.integers(min(self.past), self.length()))
        path = self.folder / NAME
        path.write_bytes(path.read_bytes()[:cut])
        self.store = LabelStore(PICTURES, self.folder)
        whole = max(length for length in self.past if length <= cut)
        self.past = {length: model for length, model in self.past.items() if length <= whole}
        self.model = self.past[whole].copy()

    @invariant()
    def agrees_with_the_dictionary(self):
        assert labels_of(self.store) == self.model.labels
        assert self.store.classes == self.model.classes
        assert self.store.can_undo == (self.model.present > 0)
        assert self.store.can_redo == (self.model.present < len(self.model.states) - 1)


Sessions.TestCase.settings = settings(max_examples=60, stateful_step_count=30, deadline=None)
TestSessions = Sessions.TestCase


def test_the_revision_grows_by_one_with_every_change(tmp_path):
    store = LabelStore(PICTURES, tmp_path)
    assert [store.label([0], "a"), store.label([1, 2], "b"), store.undo()] == [1, 2, 3]
    assert store.label([], "a") == 3
    assert store.clear([5]) == 3  # it has no label
    store.close()
    assert LabelStore(PICTURES, tmp_path).revision == 3


def test_four_writers_lose_nothing(tmp_path):
    names = [f"{number:04d}.png" for number in range(400)]
    store = LabelStore(names, tmp_path)
    revisions = []

    def write(first):
        for number in range(first, 400, 4):
            revisions.append(store.label([number], f"class {first}"))

    writers = [threading.Thread(target=write, args=(first,)) for first in range(4)]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join()
    store.close()
    assert sorted(revisions) == list(range(1, 401))
    again = LabelStore(names, tmp_path)
    assert labels_of(again) == {number: f"class {number % 4}" for number in range(400)}
    again.close()


@pytest.mark.parametrize("name", ["", "  ", "a/b", "a\\b", ".hidden", "..", "unknown", "a\nb"])
def test_names_that_cannot_be_classes_are_refused(tmp_path, name):
    store = LabelStore(PICTURES, tmp_path)
    with pytest.raises(InputError):
        store.label([0], name)
    assert store.revision == 0
    store.close()


@pytest.mark.parametrize("number", [-1, 6, 10**12])
def test_pictures_that_do_not_exist_are_refused(tmp_path, number):
    store = LabelStore(PICTURES, tmp_path)
    with pytest.raises(InputError, match=f"no picture {number}"):
        store.label([0, number], "oak")
    assert labels_of(store) == {}
    store.close()


def test_a_change_that_cannot_be_written_is_not_made(tmp_path):
    store = LabelStore(PICTURES, tmp_path)
    store.label([0], "oak")
    store.close()
    with pytest.raises(PscoError):
        store.label([1], "elm")
    assert labels_of(store) == {0: "oak"}
    assert store.revision == 1


def test_labels_of_pictures_that_are_gone_are_kept(tmp_path):
    store = LabelStore(PICTURES, tmp_path)
    store.label([0, 3], "oak")
    store.close()
    fewer = LabelStore(PICTURES[1:], tmp_path)
    assert labels_of(fewer) == {2: "oak"}
    fewer.close()
    again = LabelStore(PICTURES, tmp_path)
    assert labels_of(again) == {0: "oak", 3: "oak"}
    again.close()


def test_supports_of_a_classifier_can_be_renamed_and_stay_when_all_is_undone(tmp_path):
    store = LabelStore(PICTURES, tmp_path, ["oak", "elm"])
    store.rename("oak", "quercus")
    assert store.classes == ["quercus", "elm"]
    store.undo()
    assert not store.can_undo
    assert store.classes == ["oak", "elm"]
    assert labels_of(store) == {}
    store.close()


@pytest.mark.parametrize(
    "entry",
    [
        {},
        {"do": "fly"},
        {"do": "undo"},
        {"do": "set"},
        {"do": "set", "labels": {"a": 3}},
        {"do": "set", "labels": {"a": ["oak"]}},
        {"do": "set", "labels": {"a": ["../../oak", None, False]}},
        {"do": "set", "labels": {"a": ["oak", ["elm"], False]}},
        {"do": "rename", "old": "oak", "new": "/etc"},
    ],
)
def test_entries_that_mean_nothing_are_errors(entry):
    labels = Labels()
    with pytest.raises(ValueError, match="not an entry"):
        labels.apply(entry)
    assert labels.revision == 0
    assert labels.given == {}


def test_a_journal_with_such_an_entry_is_refused_with_its_line(tmp_path):
    journal = Journal(tmp_path)
    journal.append({"do": "set", "labels": {"0.png": ["oak", None, False]}})
    journal.append({"do": "set", "labels": {"0.png": ["../oak", None, False]}})
    journal.close()
    with pytest.raises(PscoError, match=r"line 3 of .* is damaged: not an entry"):
        LabelStore(PICTURES, tmp_path)
    Journal(tmp_path).close()  # the session was released
