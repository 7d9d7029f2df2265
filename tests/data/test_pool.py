"""Processing of many files in threads."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from psco.data.reading.pool import each_file
from psco.data.reading.source import FolderSource


@pytest.fixture
def names(tmp_path: Path) -> list[str]:
    files = [f"{number:03}.bin" for number in range(100)]
    for name in files:
        (tmp_path / name).write_bytes(name.encode())
    return files


def test_results_come_in_the_order_of_the_files(tmp_path, names):
    results = each_file(
        FolderSource(tmp_path), names, lambda content, _: content.decode(), title="", progress=False
    )
    assert list(results) == names


def test_no_thread_is_at_work_after_closing(tmp_path, names, monkeypatch):
    monkeypatch.setattr(os, "cpu_count", lambda: 2)
    started: list[str] = []
    ended: list[str] = []

    def slow(_: bytes, name: str) -> str:
        started.append(name)
        time.sleep(0.02)
        ended.append(name)
        return name

    results = each_file(FolderSource(tmp_path), names, slow, title="", progress=False)
    next(results)
    results.close()
    assert sorted(started) == sorted(ended)
    handed_over = len(started)
    time.sleep(0.1)
    assert len(started) == handed_over < len(names) / 10
