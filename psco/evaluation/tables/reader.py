"""Reading of experiment files: rows that are trained, columns that are tested, the paper's numbers.

A file describes one table or figure::

    title: Few-shot accuracy on Omniglot
    where: Table 1                       # in the paper
    data: omniglot                       # what is trained on
    recipe: omniglot
    set: [train.purity=true]             # settings of all rows
    columns: {omniglot: [[5, 1]]}        # test data: ways and shots
    rows:
      - {name: PsCo, method: psco, set: [], paper: [96.37 ± 0.20]}

Rows with the same resolved settings and images share a run, also between files. If no row has
numbers of the paper, the rows are compared with the first one, task by task.
"""

from __future__ import annotations

from functools import cache
from importlib import resources
from pathlib import Path
from typing import Any, Literal, NamedTuple

from pydantic import Field, ValidationError, field_validator, model_validator

from psco.errors import InputError, quoted, unknown_name
from psco.recipes.schema import Section, read_tree
from psco.registry import first_problem


class Number(NamedTuple):
    """A printed accuracy in percent, and half its 95 % interval if that is printed too."""

    mean: float
    ci95: float | None = None


class Column(NamedTuple):
    """A data set to test on, with the ways and shots of its tasks."""

    data: str
    ways: int
    shots: int


class TableRow(Section):
    """A row: how its network is trained and tested, and what the paper prints."""

    name: str = ""
    method: str = "psco"
    group: str = ""
    recipe: str | None = Field(None, description="None: the recipe of the table")
    set: list[str] = Field(default_factory=list)
    images: int | None = Field(None, ge=1, description="of the training split; None: as the table")
    rule: str | None = Field(None, description="None: the rule of the paper for this method")
    options: dict[str, Any] = Field(default_factory=dict)
    paper: list[Number | None] = Field(default_factory=list)
    transductive: bool = Field(False, description="whether the paper's numbers are")
    notes: list[str] = Field(default_factory=list)

    @field_validator("paper", mode="before")
    @classmethod
    def _numbers(cls, given: Any) -> Any:
        return [None if value is None else _number(value) for value in given or []]


class Table(Section):
    """A table or figure of the paper, or an experiment of the user."""

    name: str = Field("", description="the name of the file without its ending")
    file: str = Field("", description="what `read_table` reads it from")
    title: str
    where: str = ""
    data: str
    recipe: str
    set: list[str] = Field(default_factory=list)
    images: int | None = Field(None, ge=1, description="of the training split; None: all")
    split: Literal["test", "val"] = "test"
    seeds: int = Field(1, ge=1, description="training seeds that the paper averages over")
    tasks: int = Field(2000, ge=2)
    slow_tasks: int = Field(
        100, ge=2, description="tasks for rules that train a network on every task"
    )
    queries: int = Field(15, ge=1)
    columns: dict[str, list[tuple[int, int]]] = Field(default_factory=dict)
    curve: str | None = Field(None, description="a column of metrics.csv to plot over training")
    plot: str | None = Field(None, description="label of x; the names of the rows are its values")
    notes: dict[str, str] = Field(default_factory=dict)
    table_notes: list[str] = Field(default_factory=list)
    rows: list[TableRow]

    @property
    def settings(self) -> list[Column]:
        """The columns in order."""
        return [Column(data, *pair) for data, pairs in self.columns.items() for pair in pairs]

    @property
    def compares_rows(self) -> bool:
        """Whether rows are compared with the first one, as the paper has no numbers for them."""
        return self.curve is None and not any(row.paper for row in self.rows)

    @model_validator(mode="after")
    def _is_consistent(self) -> Table:
        width = len(self.settings)
        if bool(width) == (self.curve is not None):
            raise InputError("give either columns to test or a curve of the training")
        for row in self.rows:
            if row.paper and len(row.paper) != width:
                raise InputError(f"row {row.name!r} has {len(row.paper)} numbers, not {width}")
        used = {*self.table_notes, *(note for row in self.rows for note in row.notes)}
        if unknown := used - self.notes.keys():
            raise unknown_name("note", min(unknown), self.notes)
        return self


def table_names() -> list[str]:
    """Return the names of the paper's tables and figures, in its order."""
    known = {file.name[:-5] for file in _folder().iterdir() if file.name.endswith(".yaml")}
    first = [name for name in _ORDER if name in known]
    return [*first, *sorted(known - {*first})]


def read_table(name: str | Path) -> Table:
    """Read one of `table_names`, or an experiment file.

    Raises
    ------
    InputError
        If there is no such table, or the file is not one.
    """
    if str(name).endswith((".yaml", ".yml")):
        path = Path(name)
        if not path.is_file():
            raise InputError(f"there is no experiment file {str(path)!r}")
        return _check(path, str(path), path.stem)
    if str(name) not in table_names():
        raise unknown_name("table", str(name), table_names())
    return _read_own(str(name))


_ORDER = (
    *("table1-omniglot", "table1-miniimagenet", "table2", "table3"),
    *("components", "augmentation", "shots", "momentum", "temperature", "adaptation"),
    *("purity", "overlap", "adaptation-curves"),
)


@cache
def _read_own(name: str) -> Table:
    text = (_folder() / f"{name}.yaml").read_text(encoding="utf-8")
    return _check(text, name, name)


def _check(text: str | Path, file: str, name: str) -> Table:
    try:
        return Table.model_validate({**read_tree(text, file), "name": name, "file": file})
    except ValidationError as error:
        raise InputError(f"experiment {file!r}: {first_problem(error)}") from None


def _number(value: Any) -> Number:
    """Read ``96.37`` or ``96.37 ± 0.20``."""
    mean, _, ci95 = str(value).partition("±")
    try:
        return Number(float(mean), float(ci95) if ci95 else None)
    except ValueError:
        raise InputError(
            f"a number is written 96.37 or 96.37 ± 0.20, not {quoted(value)}"
        ) from None


def _folder() -> Any:
    return resources.files("psco.evaluation.tables")
