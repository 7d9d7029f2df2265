"""The runs that tables need: one for each distinct resolved recipe and data set."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import torch

from psco.evaluation.evaluate import rule_for
from psco.evaluation.rules import RULES
from psco.evaluation.tables.reader import Table, TableRow
from psco.experiments.reproduce.budget import Budget
from psco.experiments.reproduce.sets import DataSets
from psco.methods import METHODS, Method
from psco.recipes.build import build_method
from psco.recipes.recipe import Recipe, TrainSettings, load_recipe

TASK_SEED = 0
RUNS = "runs"


@dataclass(frozen=True)
class Evaluation:
    """Tasks of one data set under one rule.

    Parameters
    ----------
    data, split, ways, shots, queries, tasks
        Which tasks; their seed is the same for all.
    rule, options
        The rule with all of its options, so that a changed default is another evaluation.
    """

    data: str
    split: str
    ways: int
    shots: int
    queries: int
    tasks: int
    rule: str
    options: dict[str, Any]

    @property
    def name(self) -> str:
        """A name that differs if anything differs."""
        return f"{Path(self.data).name}-{self.ways}-{self.shots}-{self.rule}-{_hash(asdict(self))}"


@dataclass
class Job:
    """A run and the tests of its network.

    Parameters
    ----------
    data
        What is trained on.
    recipe
        All settings, with seed and length.
    full
        The length and optimiser of the recipe without a budget.
    fingerprint
        Hash of the training images; None if the data set is missing.
    problem
        Why it cannot be trained, if so.
    tests
        What the tables need.
    tables
        The tables that need it.
    images
        Number of training images; None for all.
    given
        Name of a finished run that is tested instead; see ``psco.experiments.reproduce.given``.
    """

    data: str
    recipe: Recipe
    full: TrainSettings
    fingerprint: str | None
    problem: str | None
    tests: list[Evaluation] = field(default_factory=list)
    tables: list[str] = field(default_factory=list)
    images: int | None = None
    given: str | None = None

    @property
    def name(self) -> str:
        """The identity of the run: data set, method, and the hashes of settings and images."""
        return self.given or f"{self._prefix}-{(self.fingerprint or 'missing')[:8]}"

    @property
    def title(self) -> str:
        """A short description for people."""
        return f"{self.recipe.method.name} on {self.data}, seed {self.recipe.train.seed}"

    def folder(self, out: Path) -> Path:
        """Return the folder of the run in ``out``, which need not exist.

        If the data set is missing, that is the folder of a run with the same settings, if any.
        """
        if self.fingerprint is None and self.given is None:
            earlier = sorted((out / RUNS).glob(f"{self._prefix}-" + "[0-9a-f]" * 8))
            if earlier:
                return earlier[0]
        return out / RUNS / self.name

    @property
    def _prefix(self) -> str:
        return f"{Path(self.data).name}-{self.recipe.method.name}-{self.recipe.hash()}"


def row_job(
    table: Table, row: TableRow, budget: Budget, seed: int, sets: DataSets, tasks: int | None = None
) -> Job | None:
    """Return the run of a row with one seed; None if its method does not exist.

    Parameters
    ----------
    tasks
        At most this many tasks for each test; None for the number in the table.
    """
    if row.method not in METHODS:
        return None
    changes = [f"method.name={row.method}", *table.set, *row.set]
    base = row.recipe or table.recipe
    full = load_recipe(base, changes)
    recipe = load_recipe(base, [*changes, *budget.overrides, f"train.seed={seed}"])
    number = row.images or table.images
    problem = sets.problem(table.data, "train", recipe.image, number)
    fingerprint = None
    if problem is None:
        fingerprint = sets.fingerprint(table.data, "train", recipe.image, number)
    tests = row_tests(table, row, tasks, recipe)
    return Job(table.data, recipe, full.train, fingerprint, problem, tests, [table.name], number)


def row_tests(
    table: Table, row: TableRow, tasks: int | None, recipe: Recipe | None = None
) -> list[Evaluation]:
    """Return the tests of a row, one for each column.

    Parameters
    ----------
    recipe
        What the network is trained with; some methods choose options of their rule by it.
    """
    trained = {} if recipe is None else _rule_options(recipe)
    tests = []
    for column in table.settings:
        rule = row.rule or rule_for(METHODS[row.method], table.data, column.data)
        own = trained if rule == METHODS[row.method].rule else {}
        trains_network = getattr(RULES[rule], "needs_pixels", False)
        number = table.slow_tasks if trains_network else table.tasks
        tests.append(
            Evaluation(
                *(column.data, table.split, column.ways, column.shots, table.queries),
                tasks=min(number, tasks or number),
                rule=rule,
                options=RULES.options(rule, {**own, **row.options}),
            )
        )
    return tests


def _rule_options(recipe: Recipe) -> dict[str, Any]:
    """Return the options of a method's rule that follow from how it is trained."""
    if METHODS[recipe.method.name].rule_options is Method.rule_options:
        return {}  # no need to build the network
    with torch.random.fork_rng():
        return build_method(recipe, quiet=True).rule_options()


def merge_jobs(jobs: Iterable[Job]) -> list[Job]:
    """Return each run once, with the tests that all tables need."""
    merged: dict[str, Job] = {}
    for job in jobs:
        first = merged.setdefault(job.name, job)
        if first is not job:
            first.tests += [test for test in job.tests if test not in first.tests]
            first.tables += [name for name in job.tables if name not in first.tables]
    return list(merged.values())


def table_jobs(
    tables: Sequence[Table],
    budget: Budget,
    seeds: Sequence[int],
    sets: DataSets,
    methods: Sequence[str] = (),
    tasks: int | None = None,
) -> list[Job]:
    """Return the runs of tables in the order in which they are trained: seed by seed.

    Parameters
    ----------
    methods
        Only rows of these methods; none for all.
    """
    rows = [
        (seed, table, row)
        for seed in seeds
        for table in tables
        for row in table.rows
        if not methods or row.method in methods
    ]
    found = (row_job(table, row, budget, seed, sets, tasks) for seed, table, row in rows)
    return merge_jobs(job for job in found if job is not None)


def _hash(content: dict[str, Any]) -> str:
    text = json.dumps(content, sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:8]
