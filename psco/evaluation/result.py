"""The result of an evaluation: the accuracy of one model in one setting under one rule."""

from __future__ import annotations

import hashlib
import json
import math
from dataclasses import asdict, dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np

from psco.errors import InputError


class Difference(NamedTuple):
    """The mean of paired differences in percentage points, and half its 95 % interval."""

    mean: float
    ci95: float

    @property
    def significant(self) -> bool:
        """Whether zero lies outside the interval."""
        return abs(self.mean) > self.ci95


@dataclass(frozen=True)
class Report:
    """The accuracy of one model in one setting under one rule.

    Parameters
    ----------
    data, split
        The images that were classified.
    rule, options, transductive
        The rule, and whether its predictions depend on the other queries of a task.
    views_at_test
        Number of views averaged with each image.
    ways, shots, queries, tasks, seed
        Which tasks.
    mean, ci95
        Accuracy in percent, and half the width of its 95 % interval: 1.96 s / sqrt(tasks) with the
        unbiased standard deviation s over the tasks.
    left_out
        Number of classes with too few images for such a task.
    per_task
        Accuracy of every task in percent.
    """

    data: str
    split: str
    rule: str
    ways: int
    shots: int
    queries: int
    tasks: int
    seed: int
    mean: float
    ci95: float
    options: dict[str, Any] = field(default_factory=dict)
    transductive: bool = False
    views_at_test: int = 0
    left_out: int = 0
    per_task: tuple[float, ...] = field(default=(), repr=False)

    @property
    def hash(self) -> str:
        """Twelve hexadecimal digits that identify the settings, not the result."""
        results = ("mean", "ci95", "per_task")
        settings = {name: value for name, value in asdict(self).items() if name not in results}
        return hashlib.sha256(json.dumps(settings, sort_keys=True).encode()).hexdigest()[:12]

    def as_dict(self) -> dict[str, Any]:
        """Return everything except the accuracies of single tasks."""
        fields = {name: value for name, value in asdict(self).items() if name != "per_task"}
        return {**fields, "hash": self.hash}

    def to_json(self) -> str:
        """Return everything as a JSON object."""
        return json.dumps({**asdict(self), "hash": self.hash})

    @property
    def how(self) -> str:
        """The rule, whether it is inductive, and the number of views at test, if any."""
        kind = "transductive" if self.transductive else "inductive"
        views = f", {self.views_at_test} views at test" if self.views_at_test else ""
        return f"{self.rule} ({kind}{views})"

    def to_markdown(self) -> str:
        """Return the result as a Markdown table of one row."""
        cells = {
            "data": f"{self.data} ({self.split})",
            "rule": self.how,
            "setting": f"{self.ways}-way {self.shots}-shot",
            "accuracy, %": f"{self.mean:.2f} ± {self.ci95:.2f}",
            "tasks": f"{self.tasks}, {self.queries} queries per class, seed {self.seed}",
            "classes left out": str(self.left_out),
        }
        lines = [cells.keys(), ["---"] * len(cells), cells.values()]
        return "\n".join(f"| {' | '.join(line)} |" for line in lines)

    def first(self, number: int) -> Report:
        """Return the result of the first tasks alone, or of all if there are fewer."""
        if number >= self.tasks:
            return self
        values = np.array(self.per_task[:number])
        mean, ci95 = interval(values)
        return replace(self, tasks=number, mean=mean, ci95=ci95, per_task=self.per_task[:number])

    def compare(self, other: Report) -> Difference:
        """Return the difference from another result on the same tasks, with its paired interval.

        Raises
        ------
        InputError
            If the two were not measured on the same tasks.
        """
        tasks = ("data", "split", "ways", "shots", "queries", "tasks", "seed")
        for name in tasks:
            mine, theirs = getattr(self, name), getattr(other, name)
            if mine != theirs:
                raise InputError(
                    f"results on different tasks cannot be compared: {name} is {mine!r} and "
                    f"{theirs!r}; evaluate both on the same tasks"
                )
        return Difference(*interval(np.array(self.per_task) - np.array(other.per_task)))


def interval(values: np.ndarray) -> tuple[float, float]:
    """Return the mean of (n,) values and half the width of its 95 % interval.

    That is 1.96 · s / √n with the unbiased standard deviation s, or NaN for a single value.
    """
    std = float(values.std(ddof=1)) if len(values) > 1 else math.nan
    return float(values.mean()), 1.96 * std / math.sqrt(len(values))
