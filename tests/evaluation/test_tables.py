"""The paper's tables as files: the numbers against sums taken from its LaTeX source."""

from __future__ import annotations

import pytest

import psco
from psco.evaluation.tables.reader import Number, read_table, table_names
from psco.methods import METHODS
from psco.recipes.recipe import load_recipe

NAMES = [
    *("table1-omniglot", "table1-miniimagenet", "table2", "table3", "components", "augmentation"),
    *("shots", "momentum", "temperature", "adaptation", "purity", "overlap", "adaptation-curves"),
]
# Sums over the rows, column by column, computed from the source of the paper.
SUMS = {
    "table1-omniglot": [1190.54, 1311.56, 872.13, 1030.43],
    "table1-miniimagenet": [581.62, 760.92, 891.21, 948.43],
    "table2": [
        *(420.59, 492.55, 302.72, 390.74, 470.77, 544.14, 352.4, 429.32),
        *(628.4, 694.0, 600.52, 652.38, 333.76, 401.45, 195.4, 219.8),
    ],
    "table3": [511.46, 375.35, 567.75, 449.23, 606.83, 565.52, 282.23, 172.8],
    "components": [560.82, 587.92, 497.56, 561.96],
    "augmentation": [175.48, 237.12, 271.36, 279.98],
    "shots": [185.49, 250.36, 284.2, 292.91],
    "momentum": [139.15, 186.97, 212.09, 218.31],
    "temperature": [139.45, 188.18, 212.76, 218.87],
}
INTERVAL_SUMS = {
    "table1-omniglot": [1.05, 0.45, 0.8, 0.42],
    "table1-miniimagenet": [1.67, 1.53, 1.37, 1.27],
    "table2": [
        *(3.95, 3.94, 3.32, 3.56, 3.72, 3.39, 3.57, 3.42),
        *(3.81, 2.85, 3.5, 2.96, 2.93, 2.82, 2.24, 2.33),
    ],
    "table3": [5.71, 5.27, 4.56, 5.25, 4.64, 4.34, 3.84, 2.76],
}


def columns(name):
    rows = [row.paper for row in read_table(name).rows if row.paper]
    return [
        [number for number in column if number is not None] for column in zip(*rows, strict=True)
    ]


def test_all_tables_and_figures_are_there_in_the_order_of_the_paper():
    assert table_names() == NAMES


@pytest.mark.parametrize("name", SUMS)
def test_the_columns_sum_up_to_those_of_the_paper(name):
    sums = [sum(number.mean for number in column) for column in columns(name)]
    assert sums == pytest.approx(SUMS[name], abs=0.005)


@pytest.mark.parametrize("name", INTERVAL_SUMS)
def test_the_intervals_sum_up_to_those_of_the_appendix(name):
    sums = [sum(number.ci95 or 0 for number in column) for column in columns(name)]
    assert sums == pytest.approx(INTERVAL_SUMS[name], abs=0.005)


def test_adaptation_has_both_shots_of_nine_data_sets():
    sums = [sum(number.mean for number in column) for column in columns("adaptation")]
    both = [a + b for a, b in zip(sums[::2], sums[1::2], strict=True)]
    printed = [271.78, 243.46, 194.8, 271.38, 221.47, 347.66, 322.42, 188.3, 104.61]
    assert both == pytest.approx(printed, abs=0.005)
    before, after = (row.paper for row in read_table("adaptation").rows)
    assert (before[10].mean, before[11].mean) == (79.75, 84.72)  # CropDiseases
    assert (after[10].mean, after[11].mean) == (88.24, 94.95)


def test_the_points_of_the_adaptation_curves_are_those_of_the_table():
    table = {row.name: row.paper for row in read_table("adaptation").rows}
    curves = {row.name: row.paper for row in read_table("adaptation-curves").rows}
    places = [0, 1, 10, 11]  # miniImageNet and CropDiseases
    assert curves["0"] == [table["before"][place] for place in places]
    assert curves["50"] == [table["after"][place] for place in places]


def test_numbers_have_their_intervals():
    rows = {row.method: row.paper for row in read_table("table1-omniglot").rows if row.paper}
    assert rows["psco"][2] == Number(89.64, 0.17)
    assert rows["umtra"][0] == Number(83.8, None)
    assert rows["lasium-maml"][2] is None


@pytest.mark.parametrize("name", NAMES)
def test_every_row_of_an_existing_method_has_valid_settings(name):
    table = read_table(name)
    for row in table.rows:
        if row.method in METHODS:
            load_recipe(table.recipe, [f"method.name={row.method}", *table.set, *row.set])


def test_unknown_tables_and_malformed_files_are_explained(tmp_path):
    with pytest.raises(psco.InputError, match="unknown table 'tabel2'; did you mean 'table2'"):
        read_table("tabel2")
    with pytest.raises(psco.InputError, match="no experiment file"):
        read_table(tmp_path / "none.yaml")
    file = tmp_path / "own.yaml"
    head = "title: t\ndata: glyphs\nrecipe: glyphs\n"
    for text, message in {
        "columns: {glyphs: [[5, 1]]}\nrows: [{paper: [1, 2]}]": "has 2 numbers, not 1",
        "columns: {glyphs: [[5, 1]]}\nrows: [{paper: [much]}]": "is written 96.37",
        "columns: {glyphs: [[5, 1]]}\nrows: [{metho: psco}]": "did you mean 'method'",
        "columns: {glyphs: [[5, 1]]}\nrows: [{notes: [x]}]": "unknown note 'x'",
        "rows: []": "either columns to test or a curve",
    }.items():
        file.write_text(head + text)
        with pytest.raises(psco.InputError, match=message):
            read_table(file)
