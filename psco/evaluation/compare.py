"""Several runs on the same tasks, each under its published rule and under a common one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from psco.data import ImageSet, load_dataset
from psco.data.tasks import Tasks
from psco.errors import InputError
from psco.evaluation.embed import Encoder, load
from psco.evaluation.evaluate import Ways, default_rule, draw_tasks, evaluate_tasks
from psco.evaluation.paper_setting import departures
from psco.evaluation.published import Setting, published
from psco.evaluation.result import Difference, Report
from psco.evaluation.rules import RULES
from psco.networks.published import PUBLISHED

COMMON_RULE = "class-mean"


@dataclass(frozen=True)
class Row:
    """One run under one rule.

    Parameters
    ----------
    name
        The name of the run folder.
    method, title, kind
        The method that trained it.
    steps
        Steps it was trained for.
    rule, own_rule
        The rule it was tested under, and whether that is the published one of the method.
    results
        Results by (ways, shots); settings that the model cannot do are missing.
    paper
        The paper's numbers for the method on this data, by (ways, shots). Empty unless training,
        rule and test are those of the paper, see `departures`.
    weights
        Name of the published weights that the backbone started from, such as ``imagenet``.
    """

    name: str
    method: str
    title: str
    kind: str
    steps: int
    rule: str
    own_rule: bool
    results: dict[Setting, Report]
    paper: dict[Setting, float]
    weights: str | None = None

    @property
    def transductive(self) -> bool:
        """Whether predictions depend on each other."""
        return any(result.transductive for result in self.results.values())


@dataclass(frozen=True)
class Comparison:
    """The table: rows in the order of the runs, the first being the reference.

    Parameters
    ----------
    data, split, settings, queries, seed
        Which tasks.
    rows
        First all runs under their own rules, then under the common one.
    """

    data: str
    split: str
    settings: tuple[Setting, ...]
    queries: int
    seed: int
    rows: tuple[Row, ...]

    def difference(self, row: Row, setting: Setting) -> Difference | None:
        """Return the paired difference from the first row on the tasks that both have done."""
        reference, result = self.rows[0].results.get(setting), row.results.get(setting)
        if row is self.rows[0] or reference is None or result is None:
            return None
        number = min(reference.tasks, result.tasks)
        return result.first(number).compare(reference.first(number))

    def as_dict(self) -> dict[str, Any]:
        """Return everything except the results of single tasks, for JSON."""
        return {
            "data": self.data,
            "split": self.split,
            "queries": self.queries,
            "seed": self.seed,
            "results": [
                {
                    "run": row.name,
                    "method": row.method,
                    "title": row.title,
                    "kind": row.kind,
                    "steps": row.steps,
                    "own_rule": row.own_rule,
                    "weights": row.weights,
                    **result.as_dict(),
                    "paper": row.paper.get(setting),
                    "difference": _difference_dict(self.difference(row, setting)),
                }
                for row in self.rows
                for setting, result in row.results.items()
            ],
        }


def compare(
    runs: Sequence[str | Path | Encoder],
    data: str | Path | ImageSet,
    settings: Sequence[tuple[Ways, int]],
    split: str = "test",
    root: str | Path | None = None,
    queries: int = 15,
    tasks: int = 2000,
    slow_tasks: int = 100,
    seed: int = 0,
    progress: bool = False,
) -> Comparison:
    """Evaluate several runs on the same tasks.

    Parameters
    ----------
    runs
        Run folders or loaded networks; the first is the reference.
    data, split, root
        Labelled images: a set, or anything that `load_dataset` takes, which each network then gets
        in its own size and channels.
    settings
        Pairs of ways (a number, or ``"all"`` classes with enough images) and shots.
    queries, tasks, seed
        Which tasks; they are the same for every row.
    slow_tasks
        How many of them, the first ones, for rules that train a network on every task.
    progress
        Show progress on stderr.

    Raises
    ------
    InputError
        If there are no runs, or the images are too few for such tasks.
    """
    if not runs:
        raise InputError("compare needs at least one run folder, got none")
    encoders = [run if isinstance(run, Encoder) else load(run) for run in runs]
    sets = [_images_for(encoder, data, split, root) for encoder in encoders]
    drawn = draw_tasks(sets[0], settings, queries, tasks, seed)
    resolved = tuple(sample.setting for sample in drawn)
    own, common = [], []
    for encoder, images in zip(encoders, sets, strict=True):
        rule = default_rule(encoder, images)
        own.append(_row(encoder, images, drawn, rule, slow_tasks, progress))
        if encoder.method.has_features and rule != COMMON_RULE:
            common.append(_row(encoder, images, drawn, COMMON_RULE, slow_tasks, progress))
    first = sets[0]
    return Comparison(first.name, first.split, resolved, queries, seed, (*own, *common))


def _images_for(
    encoder: Encoder, data: str | Path | ImageSet, split: str, root: str | Path | None
) -> ImageSet:
    if isinstance(data, ImageSet):
        return data
    image = encoder.recipe.image
    return load_dataset(data, split, root, size=image.source_size, channels=image.channels)


def _row(
    encoder: Encoder,
    images: ImageSet,
    drawn: Sequence[Tasks],
    rule: str,
    slow_tasks: int,
    progress: bool,
) -> Row:
    method, name = encoder.method, encoder.recipe.method.name
    is_own = rule == default_rule(encoder, images)
    comparable = is_own and not departures(encoder, images, drawn)
    possible = [tasks for tasks in drawn if tasks.setting[0] <= method.most_ways]
    if getattr(RULES[rule], "needs_pixels", False):
        possible = [tasks.first(slow_tasks) for tasks in possible]
    results = evaluate_tasks(encoder, images, possible, rule, progress=progress)
    return Row(
        name=encoder.name,
        method=name,
        title=method.title,
        kind=method.kind,
        steps=encoder.steps,
        rule=rule,
        own_rule=is_own,
        results={(result.ways, result.shots): result for result in results},
        paper=published(images.name, name) if comparable else {},
        weights=encoder.recipe.init if encoder.recipe.init in PUBLISHED else None,
    )


def _difference_dict(difference: Difference | None) -> dict[str, Any] | None:
    if difference is None:
        return None
    return {**difference._asdict(), "significant": difference.significant}
