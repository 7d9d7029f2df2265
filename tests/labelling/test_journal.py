"""The journal: what was acknowledged survives, and damage is reported."""

from __future__ import annotations

import os
import signal
import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from psco.errors import InputError, PscoError
from psco.labelling.journal import LOCK, NAME, Journal, read_entries

ENTRIES = [{"do": "set", "labels": {"a.png": ["x", None, False]}}, {"do": "undo"}, {"n": "ü\udcff"}]

WRITER = """
import itertools, sys
from pathlib import Path
from psco.labelling.journal import Journal
journal = Journal(Path(sys.argv[1]))
for number in itertools.count():
    journal.append({"number": number})
    print(number, flush=True)
"""


def written(folder, entries=ENTRIES):
    journal = Journal(folder)
    for entry in entries:
        journal.append(entry)
    journal.close()
    return folder / NAME


def test_entries_come_back_in_order(tmp_path):
    written(tmp_path)
    journal = Journal(tmp_path)
    assert journal.entries == ENTRIES
    journal.append({"more": 1})
    journal.close()
    assert read_entries(tmp_path / NAME)[0] == [*ENTRIES, {"more": 1}]


@given(cut=st.integers(0, 400))
def test_a_cut_journal_holds_the_entries_before_the_cut(tmp_path_factory, cut):
    folder = tmp_path_factory.mktemp("cut")
    path = written(folder)
    content = path.read_bytes()
    path.write_bytes(content[:cut])
    whole = content[:cut].count(b"\n") - 1  # without the header
    journal = Journal(folder)
    assert journal.entries == ENTRIES[: max(0, whole)]
    journal.append({"after": True})
    journal.close()
    assert read_entries(path)[0] == [*ENTRIES[: max(0, whole)], {"after": True}]


@given(place=st.integers(0, 10_000), bit=st.integers(0, 7))
def test_a_changed_bit_is_reported_or_costs_only_the_last_entry(tmp_path_factory, place, bit):
    folder = tmp_path_factory.mktemp("bit")
    path = written(folder)
    content = bytearray(path.read_bytes())
    content[place % len(content)] ^= 1 << bit
    path.write_bytes(content)
    try:
        entries = read_entries(path)[0]
    except PscoError:
        return
    assert entries == ENTRIES[:-1]


def test_a_damaged_line_is_named(tmp_path):
    path = written(tmp_path)
    path.write_bytes(path.read_bytes().replace(b"undo", b"redo"))
    with pytest.raises(PscoError, match=r"line 3 of .*labels\.journal' is damaged"):
        Journal(tmp_path)


def test_a_torn_entry_is_left_out_with_a_warning(tmp_path, capsys):
    path = written(tmp_path)
    path.write_bytes(path.read_bytes()[:-3])
    Journal(tmp_path).close()
    assert "last entry" in capsys.readouterr().err
    assert read_entries(path)[0] == ENTRIES[:-1]


@pytest.mark.parametrize("content", [b"my own notes", b'{"journal":"other"}\n', b"\x00" * 100])
def test_a_file_that_is_no_journal_is_refused_and_kept(tmp_path, content):
    (tmp_path / NAME).write_bytes(content)
    with pytest.raises(PscoError, match=r"not a journal|damaged"):
        Journal(tmp_path)
    assert (tmp_path / NAME).read_bytes() == content


def test_a_session_is_open_once_at_a_time(tmp_path):
    journal = Journal(tmp_path)
    with pytest.raises(InputError, match="open in another process"):
        Journal(tmp_path)
    journal.close()
    Journal(tmp_path).close()


def test_nothing_that_was_acknowledged_is_lost_when_the_writer_is_killed(tmp_path):
    acknowledged = -1
    for _ in range(3):
        writer = subprocess.Popen(
            [sys.executable, "-c", WRITER, str(tmp_path)], stdout=subprocess.PIPE, text=True
        )
        for line in writer.stdout:
            acknowledged = int(line)
            if acknowledged >= 20:
                os.kill(writer.pid, signal.SIGKILL)
                break
        writer.wait()
        rest = writer.stdout.read().split()
        writer.stdout.close()
        acknowledged = int(rest[-1]) if rest else acknowledged
        entries = read_entries(tmp_path / NAME)[0]
        assert [entry["number"] for entry in entries[: acknowledged + 1]] == list(
            range(acknowledged + 1)
        )
        (tmp_path / NAME).unlink()


def test_a_full_disk_leaves_the_journal_as_it_was(tmp_path):
    code = f"""
import resource, signal
from pathlib import Path
from psco.errors import PscoError
from psco.labelling.journal import Journal
journal = Journal(Path({str(tmp_path)!r}))
journal.append({{"small": 1}})
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (4096, resource.RLIM_INFINITY))
try:
    journal.append({{"large": "x" * 10000}})
except PscoError as error:
    print(error)
journal.append({{"small": 2}})
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert "cannot be written" in done.stdout, done.stderr
    assert read_entries(tmp_path / NAME)[0] == [{"small": 1}, {"small": 2}]


def test_a_folder_that_cannot_be_written_to_is_named(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError, match="--session"):
        Journal(tmp_path / "file")
    assert not (tmp_path / LOCK).exists()
