"""Runs side by side: the same tasks for all, each under its published rule and a common one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from psco.data import ImageSet, load_dataset
from psco.data.tasks import Tasks
from psco.errors import InputError
from psco.evaluation.embed import Encoder, load
from psco.evaluation.evaluate import draw_tasks, evaluate_tasks
from psco.evaluation.published import CROSS_DOMAIN, QUERIES, SPLIT, Setting, published, trained_on
from psco.evaluation.result import Difference, Report
from psco.evaluation.rules import RULES
from psco.recipes.recipe import load_recipe
from psco.training.checkpoint import read_environment

COMMON_RULE = "class-mean"


@dataclass(frozen=True)
class Row:
    """One run under one rule.

    Parameters
    ----------
    name
        The run folder's name.
    method, title, kind
        Of the method that trained it.
    steps
        Steps it was trained for.
    rule, own_rule
        How it was tested, and whether that is the published way.
    reports
        What came out, by (ways, shots); a setting that the model cannot do is missing.
    paper
        The paper's numbers for this method on this data under its own rule; empty unless it was
        trained on the paper's data with the paper's backbone, and tested on tasks as the paper's.
    """

    name: str
    method: str
    title: str
    kind: str
    steps: int
    rule: str
    own_rule: bool
    reports: dict[Setting, Report]
    paper: dict[Setting, float]

    @property
    def transductive(self) -> bool:
        """Whether predictions depend on one another."""
        return any(report.transductive for report in self.reports.values())


@dataclass(frozen=True)
class Comparison:
    """The table: rows in the order they were asked for, the first one being the reference.

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
        """Give a row's advantage over the first row on the tasks that both have done."""
        first, other = self.rows[0].reports.get(setting), row.reports.get(setting)
        if row is self.rows[0] or first is None or other is None:
            return None
        number = min(first.tasks, other.tasks)
        return other.first(number).compare(first.first(number))

    def as_dict(self) -> dict[str, Any]:
        """Give everything but the single tasks, for JSON."""
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
                    **report.as_dict(),
                    "paper": row.paper.get(setting),
                    "difference": None if gap is None else {**gap._asdict(), "significant": mark},
                }
                for row in self.rows
                for setting, report in row.reports.items()
                for gap in [self.difference(row, setting)]
                for mark in [gap is not None and gap.significant]
            ],
        }


def compare(
    runs: Sequence[str | Path | Encoder],
    data: str | Path | ImageSet,
    settings: Sequence[Setting],
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
        Run folders or loaded networks; the first is the one that the others are compared with.
    data, split, root
        Labelled images: a set, or what `load_dataset` takes; then each network gets them in its
        own size and channels.
    settings
        Pairs of ways and shots.
    queries, tasks, seed
        Which tasks; every row sees the same.
    slow_tasks
        How many of them (the first) for rules that train a network on every task.
    progress
        Show progress on stderr.

    Raises
    ------
    InputError
        If there are no runs, or the images cannot fill the tasks.
    """
    if not runs:
        raise InputError("compare needs a run folder at least")
    encoders = [run if isinstance(run, Encoder) else load(run) for run in runs]
    sets = [_images_for(encoder, data, split, root) for encoder in encoders]
    drawn = draw_tasks(sets[0], settings, queries, tasks, seed)
    own, common = [], []
    for encoder, images in zip(encoders, sets, strict=True):
        rule = _own_rule(encoder, images)
        own.append(_row(encoder, images, drawn, rule, slow_tasks, progress))
        if encoder.method.has_features and rule != COMMON_RULE:
            common.append(_row(encoder, images, drawn, COMMON_RULE, slow_tasks, progress))
    about = sets[0]
    return Comparison(about.name, about.split, tuple(settings), queries, seed, (*own, *common))


def _images_for(
    encoder: Encoder, data: str | Path | ImageSet, split: str, root: str | Path | None
) -> ImageSet:
    if isinstance(data, ImageSet):
        return data
    image = encoder.recipe.image
    return load_dataset(data, split, root, size=image.source_size, channels=image.channels)


def _own_rule(encoder: Encoder, images: ImageSet) -> str:
    method = encoder.method
    rule: str = method.transfer_rule if images.name in CROSS_DOMAIN else method.rule
    return rule


def _row(
    encoder: Encoder,
    images: ImageSet,
    drawn: Sequence[Tasks],
    rule: str,
    slow_tasks: int,
    progress: bool,
) -> Row:
    method, name = encoder.method, encoder.recipe.method.name
    own = rule == _own_rule(encoder, images)
    comparable = own and _as_in_the_paper(encoder, images, drawn)
    slow = getattr(RULES[rule], "needs_pixels", False)
    possible = [tasks for tasks in drawn if tasks.setting[0] <= method.most_ways]
    if slow:
        possible = [tasks.first(slow_tasks) for tasks in possible]
    reports = evaluate_tasks(encoder, images, possible, rule, progress=progress)
    return Row(
        name=name if encoder.folder is None else encoder.folder.name,
        method=name,
        title=method.title,
        kind=method.kind,
        steps=encoder.steps,
        rule=rule,
        own_rule=own,
        reports={(r.ways, r.shots): r for r in reports},
        paper=published(images.name, name) if comparable else {},
    )


def _as_in_the_paper(encoder: Encoder, images: ImageSet, drawn: Sequence[Tasks]) -> bool:
    """Say whether the paper trained such a network on such images and drew such tasks."""
    data = trained_on(images.name)
    if not published(images.name, encoder.recipe.method.name) or images.split != SPLIT:
        return False
    if any(tasks.query.shape[2] != QUERIES for tasks in drawn):
        return False
    seen = {} if encoder.folder is None else read_environment(encoder.folder).get("data", {})
    theirs, ours = load_recipe(data), encoder.recipe
    return seen.get("name") == data and ours.backbone == theirs.backbone and ours.init is None
