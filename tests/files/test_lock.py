"""Locks between processes, on disks with ``flock``, without it, and of several machines."""

from __future__ import annotations

import errno
import fcntl
import json
import multiprocessing
import os
import socket
import threading
import time
from contextlib import contextmanager, suppress

import pytest

from psco.errors import PscoError
from psco.files import lock
from psco.files.lock import Holder, exclusive, file_lock, holder_of

CONTEXT = multiprocessing.get_context("forkserver")


def _hold(path, ready, leave, has_flock=True):
    if not has_flock:
        _forget_flock()
    with file_lock(path):
        ready.set()
        leave.wait(60)


def _forget_flock() -> None:
    def refuse(*_: object) -> None:
        raise OSError(errno.ENOLCK, "No locks available")  # as on some network disks

    fcntl.flock = refuse


@contextmanager
def another_process(path, has_flock=True):
    """Yield another process that holds the lock."""
    ready, leave = CONTEXT.Event(), CONTEXT.Event()
    holder = CONTEXT.Process(target=_hold, args=(path, ready, leave, has_flock))
    holder.start()
    assert ready.wait(60)
    yield holder
    if holder.is_alive():
        leave.set()
    holder.join()


@pytest.fixture(params=[True, False], ids=["flock", "no-flock"])
def has_flock(request, monkeypatch):
    """Also test disks without ``flock``; nobody has to wait long for a silent holder."""
    monkeypatch.setattr(lock, "STALE_SECONDS", 0.5)
    monkeypatch.setattr(lock, "SETTLE_SECONDS", 0.05)
    monkeypatch.setattr(fcntl, "flock", fcntl.flock)
    if not request.param:
        _forget_flock()
    return request.param


def test_a_second_process_is_refused_with_the_pid_and_host_of_the_first(tmp_path, has_flock):
    path = tmp_path / "lock"
    with another_process(path, has_flock) as holder:
        message = f"it is in use by process {holder.pid} on {socket.gethostname()}; wait"
        with pytest.raises(PscoError, match=f"^{message}$"), exclusive(path, "it", "wait"):
            pass
        assert path.exists()
    with exclusive(path, "it", "wait"):
        assert holder_of(path) == Holder.this()
    assert list(tmp_path.iterdir()) == []


def test_the_lock_of_a_killed_process_is_free_at_once(tmp_path, has_flock):
    with another_process(tmp_path / "lock", has_flock) as holder:
        holder.kill()
        holder.join()
        assert holder_of(tmp_path / "lock").is_gone
        with file_lock(tmp_path / "lock", wait=False) as is_mine:
            assert is_mine


def test_a_number_that_a_new_process_uses_again_is_not_the_holder(tmp_path, has_flock):
    (tmp_path / "lock").write_text(
        json.dumps({"pid": os.getpid(), "host": socket.gethostname(), "started": 1})
    )
    with file_lock(tmp_path / "lock", wait=False) as is_mine:
        assert is_mine


def test_one_process_cannot_hold_a_lock_twice(tmp_path, has_flock):
    with file_lock(tmp_path / "a") as first, file_lock(tmp_path / "a", wait=False) as second:
        assert (first, second) == (True, False)
    with file_lock(tmp_path / "a", wait=False) as again:
        assert again


def foreign(path) -> None:
    path.write_text(json.dumps({"pid": 4711, "host": "node7", "started": 12345}))


def test_the_lock_of_another_machine_is_free_once_it_is_not_touched_any_more(tmp_path, has_flock):
    path = tmp_path / "lock"
    foreign(path)
    with file_lock(path, wait=False) as is_mine:
        assert is_mine


def test_the_lock_of_another_machine_that_is_touched_is_held(tmp_path, has_flock):
    path = tmp_path / "lock"
    foreign(path)
    done = threading.Event()

    def touch() -> None:
        while not done.wait(0.05):
            os.utime(path)

    thread = threading.Thread(target=touch)
    thread.start()
    complaint = "in use by process 4711 on node7; wait"
    with pytest.raises(PscoError, match=complaint), exclusive(path, "it", "wait"):
        pass
    done.set()
    thread.join()
    assert holder_of(path).host == "node7"


def test_a_holder_touches_its_lock(tmp_path, monkeypatch):
    monkeypatch.setattr(lock, "TOUCH_SECONDS", 0.02)
    with file_lock(tmp_path / "lock"):
        os.utime(tmp_path / "lock", (0, 0))
        until = time.monotonic() + 30
        while (tmp_path / "lock").stat().st_mtime == 0:
            assert time.monotonic() < until
            time.sleep(0.02)


@pytest.mark.parametrize(
    "content",
    [b"", b"half a rec", b"[]", b"[" * 9999, b'{"pid": -1, "host": 3, "started": 0}', b"\xff"],
)
def test_a_lock_file_that_says_nothing_is_free(tmp_path, content, has_flock):
    (tmp_path / "lock").write_bytes(content)
    with file_lock(tmp_path / "lock", wait=False) as is_mine:
        assert is_mine


def test_a_waiting_process_gets_the_lock_after_the_holder(tmp_path, has_flock):
    order = []
    with another_process(tmp_path / "lock", has_flock) as holder:
        waiter = threading.Thread(target=lambda: _note(tmp_path / "lock", order))
        waiter.start()
        time.sleep(0.3)
        assert order == []
        holder.kill()
        holder.join()
    waiter.join(60)
    assert order == ["mine"]


def _note(path, order) -> None:
    with file_lock(path):
        order.append("mine")


def test_a_forked_child_that_outlives_its_parent_does_not_hold_the_lock(tmp_path):
    path, read_end, write_end = tmp_path / "lock", *os.pipe()
    parent = os.fork()
    if parent == 0:
        with file_lock(path):
            child = os.fork()
            if child == 0:
                time.sleep(60)
            os.write(write_end, str(child).encode())
            time.sleep(60)
    child = int(os.read(read_end, 20))
    try:
        with file_lock(path, wait=False) as is_mine:
            assert not is_mine
        os.kill(parent, 9)
        os.waitpid(parent, 0)
        with file_lock(path, wait=False) as is_mine:
            assert is_mine
    finally:
        os.kill(child, 9)
        for end in (read_end, write_end):
            os.close(end)


def test_folders_made_for_a_lock_disappear_unless_something_is_in_them(tmp_path):
    with suppress(KeyError), file_lock(tmp_path / "a" / "b" / "lock"):
        raise KeyError
    assert list(tmp_path.iterdir()) == []
    with file_lock(tmp_path / "a" / "b" / "lock"):
        (tmp_path / "a" / "kept").touch()
    assert [path.name for path in (tmp_path / "a").iterdir()] == ["kept"]
