"""The list of deliberate mistakes fits the sources; `make mutants` makes them."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.mutants.mistakes import MISTAKES, Mistake

ROOT = Path(__file__).parents[1]


@pytest.mark.parametrize("mistake", MISTAKES, ids=lambda m: f"{m.file}:{m.old.strip()[:30]}")
def test_a_mistake_can_be_made_in_one_place_and_names_tests(mistake: Mistake):
    assert (ROOT / mistake.file).read_text(encoding="utf-8").count(mistake.old) == 1
    assert mistake.old != mistake.new
    assert (ROOT / mistake.tests.split(" ")[0]).exists()
