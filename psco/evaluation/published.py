"""The accuracies printed in the paper, in percent (Tables 1 and 2), by data set and method.

The numbers themselves are in ``psco/evaluation/tables``, with those of all other tables.
"""

from __future__ import annotations

from psco.evaluation.tables.reader import read_table

Setting = tuple[int, int]  # ways, shots
CROSS_DOMAIN = ("cub", "cars", "places", "plantae", "cropdiseases", "eurosat", "isic", "chestx")
_TABLES = {"omniglot": "table1-omniglot", "miniimagenet": "table1-miniimagenet"}


def trained_on(data: str) -> str:
    """Return the data set on which the paper trained the networks that it tests on ``data``."""
    return "miniimagenet" if data in CROSS_DOMAIN else data


def published(data: str, method: str) -> dict[Setting, float]:
    """Return the paper's accuracies of a method on a data set by (ways, shots); may be empty."""
    name = "table2" if data in CROSS_DOMAIN else _TABLES.get(data)
    if name is None:
        return {}
    table = read_table(name)
    return {
        (column.ways, column.shots): number.mean
        for row in table.rows
        if row.method == method and row.paper
        for column, number in zip(table.settings, row.paper, strict=True)
        if column.data == data and number is not None
    }


def row_recipe(data: str, method: str) -> str | None:
    """Return the recipe of a method's row in Table 1, if it is not that of the whole table."""
    rows = read_table(_TABLES[data]).rows if data in _TABLES else []
    return next((row.recipe for row in rows if row.method == method and row.paper), None)


def is_transductive(method: str) -> bool:
    """Whether the paper's numbers of a method come from queries normalised or clustered together.

    MAML and training from scratch used the BatchNorm statistics of the query batch.
    """
    rows = read_table("table1-omniglot").rows
    return any(row.method == method and row.transductive for row in rows)
