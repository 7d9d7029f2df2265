"""The rows of Table 1 that have recipes of their own."""

from __future__ import annotations

import pytest

from psco.evaluation.paper_setting import _recipe_name
from psco.evaluation.tables.reader import read_table
from psco.experiments.reproduce.jobs import row_tests
from psco.methods import METHODS
from psco.recipes.recipe import load_recipe

TABLE = read_table("table1-omniglot")
ROWS = [row for row in TABLE.rows if row.recipe is not None]


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)
def test_the_recipe_of_a_row_is_of_its_method_and_takes_images_like_the_table(row):
    recipe = load_recipe(row.recipe, row.set)
    assert recipe.method.name == row.method
    ours, whole = recipe.image, load_recipe(TABLE.recipe).image
    assert (ours.size, ours.channels) == (whole.size, whole.channels)
    assert METHODS[row.method].kind == "unsupervised"


@pytest.mark.parametrize("method", ["umtra", "cactus-maml"])
def test_networks_that_adapt_are_tested_as_they_were_trained(method):
    rows = [row for row in ROWS if row.method == method]
    assert len(rows) == 2, "as published, and inductive"
    for row, statistics in zip(rows, ("query", "support"), strict=True):
        recipe = load_recipe(row.recipe, row.set)
        for test in row_tests(TABLE, row, None, recipe):
            assert test.options["statistics"] == statistics
            assert test.options["rate"] == recipe.method.options["inner_rate"] != 0.004
    assert rows[0].paper
    assert not rows[1].paper


def test_the_setting_of_the_paper_is_that_of_the_row():
    assert _recipe_name("omniglot", "umtra") == "omniglot-umtra"
    assert _recipe_name("omniglot", "psco") == "omniglot"
