"""Damaged files, some 2,000 of them: each is read, or refused in one line; see ``tests/fuzz``."""

from __future__ import annotations

import pytest

from tests.fuzz.run import fuzz
from tests.fuzz.targets import TARGETS, with_right_checksum

INPUTS = 2_000


@pytest.mark.parametrize("name", TARGETS)
def test_a_damaged_file_is_read_or_refused_in_one_line(name, tmp_path, monkeypatch):
    monkeypatch.setenv("PSCO_CACHE", str(tmp_path / "cache"))
    result = fuzz(name, range(INPUTS // len(TARGETS) + 1), tmp_path)
    assert not result.reasons
    assert result.read + result.refused == INPUTS // len(TARGETS) + 1


@pytest.mark.parametrize("name", TARGETS)
def test_the_undamaged_file_of_every_target_is_read(name, tmp_path, monkeypatch):
    monkeypatch.setenv("PSCO_CACHE", str(tmp_path / "cache"))
    target = TARGETS[name]
    for other, content in {**target.beside(), target.name: target.content()}.items():
        (tmp_path / other).write_bytes(with_right_checksum(content))
    target.read(tmp_path)
