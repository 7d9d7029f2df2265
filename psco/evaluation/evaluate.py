"""Meta-test: accuracy over many seeded few-shot tasks, with any rule (Section 3.3 of the paper)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from psco.data import ImageSet
from psco.data.tasks import Tasks, sample_tasks
from psco.errors import InputError
from psco.evaluation.embed import Embedder, Encoder, load
from psco.evaluation.result import Report, interval
from psco.evaluation.rules import RULES, Embeddings, Heads, Rule
from psco.evaluation.rules.adapt import with_adaptation
from psco.progress import Bar

_NUMBERS_AT_ONCE = 1 << 24  # gathered features of a batch of tasks: 64 MiB


def evaluate(
    model: Embedder | str | Path,
    dataset: ImageSet,
    ways: int = 5,
    shots: int = 1,
    queries: int = 15,
    tasks: int | Tasks = 2000,
    rule: str = "prototype",
    adapt_steps: int = 0,
    seed: int = 0,
    options: Mapping[str, Any] | None = None,
    progress: bool = False,
) -> Report:
    """Measure few-shot accuracy.

    Parameters
    ----------
    model
        Anything that embeds images, or a run folder.
    dataset
        A labelled image set, best of classes that training has not seen.
    ways, shots, queries, tasks
        Classes in a task, supports and queries of a class, number of tasks; or the tasks
        themselves, which then decide the other three.
    rule
        How queries are classified: a name in ``psco.evaluation.rules.RULES``.
    adapt_steps
        More than 0 is short for the rule ``adapt`` with so many steps.
    seed
        Decides the tasks: the same seed gives every model the same ones.
    options
        Options of the rule.
    progress
        Show progress with the running mean on stderr.

    Raises
    ------
    InputError
        If the images have no labels or too few of them, or there is no such rule or option.
    """
    rule, options = with_adaptation(rule, options, adapt_steps)
    if not isinstance(tasks, Tasks):
        tasks = draw_tasks(dataset, [(ways, shots)], queries, tasks, seed)[0]
    embedder = load(model) if isinstance(model, (str, Path)) else model
    return evaluate_tasks(embedder, dataset, [tasks], rule, options, progress)[0]


def draw_tasks(
    images: ImageSet, settings: Sequence[tuple[int, int]], queries: int, tasks: int, seed: int
) -> list[Tasks]:
    """Draw the tasks of several (ways, shots) from labelled images."""
    if images.labels is None:
        raise InputError(f"{images.name!r} has no labels: evaluation needs a folder for each class")
    return [sample_tasks(images.labels, w, k, queries, tasks, seed) for w, k in settings]


def evaluate_tasks(
    model: Embedder,
    images: ImageSet,
    drawn: Sequence[Tasks],
    rule: str = "prototype",
    options: Mapping[str, Any] | None = None,
    progress: bool = False,
) -> list[Report]:
    """Evaluate several sets of tasks at the price of embedding the images once.

    Options that are not given are those that the network was trained for, where its method says
    so, else the rule's own.
    """
    if isinstance(model, Encoder) and rule == model.method.rule:
        options = {**model.method.rule_options(), **(options or {})}
    settled = RULES.options(rule, dict(options or {}))
    classify = RULES[rule](**settled)
    for tasks in drawn:
        tasks.check(np.empty(0) if images.labels is None else images.labels)
    points = embeddings_for(classify, model, images)
    reports = []
    for tasks in drawn:
        predicted = classify_tasks(points, tasks, classify, model.heads, progress)
        accuracy = 100 * _is_right(predicted).mean(dim=(1, 2)).double().numpy()  # (T,)
        mean, ci95 = interval(accuracy)
        ways, shots = tasks.setting
        reports.append(
            Report(
                data=images.name,
                split=images.split,
                rule=rule,
                options=settled,
                transductive=classify.transductive,
                views_at_test=model.recipe.views.at_test if isinstance(model, Encoder) else 0,
                ways=ways,
                shots=shots,
                queries=predicted.shape[2],
                tasks=len(tasks),
                seed=tasks.seed,
                mean=mean,
                ci95=ci95,
                left_out=tasks.left_out,
                per_task=tuple(accuracy.tolist()),
            )
        )
    return reports


def embeddings_for(rule: Rule, model: Embedder, images: ImageSet) -> Embeddings:
    """Embed all images for a rule, once.

    Raises
    ------
    InputError
        If the rule trains a network and the model is none.
    """
    if not getattr(rule, "needs_pixels", False):
        return model.embed(images.images)
    if not isinstance(model, Encoder):
        raise InputError(f"rule {type(rule).__name__!r} trains a network and needs a run folder")
    return model.pixels(images.images)


def classify_tasks(
    points: Embeddings,
    tasks: Tasks,
    rule: Rule,
    heads: Heads | None = None,
    progress: bool = False,
) -> Tensor:
    """Predict the class of every query.

    Parameters
    ----------
    points
        The whole image set, (n,).
    tasks
        Indices into it: T tasks of N ways with K shots and Q queries.
    rule, heads
        How to classify, and the heads of the network for rules that train them.
    progress
        Show progress with the running mean.

    Returns
    -------
    Tensor
        (T, N, Q) int64 in 0..N−1; the true class of row n is n.
    """
    ways, shots = tasks.setting
    per_task = tasks.support[0].size + tasks.query[0].size
    several = max(1, _NUMBERS_AT_ONCE // (per_task * points.features.shape[1]))
    several = min(several, getattr(rule, "tasks_at_once", several))
    labels = torch.arange(ways).repeat_interleave(shots)  # (NK,)
    predicted: list[Tensor] = []
    with Bar(f"{ways}-way {shots}-shot", progress) as bar:
        for begin in range(0, len(tasks), several):
            s = torch.from_numpy(tasks.support[begin : begin + several]).flatten(1)  # (t, NK)
            q = torch.from_numpy(tasks.query[begin : begin + several])  # (t, N, Q)
            scores = rule(
                points[s], labels.expand(len(s), -1), points[q.flatten(1)], ways, heads
            )  # (t, NQ, N)
            predicted.append(scores.argmax(dim=2).view_as(q))
            if progress:
                right = 100 * _is_right(torch.cat(predicted)).mean().item()
                bar.update(min(1.0, (begin + several) / len(tasks)), f"mean {right:.2f} %")
    return torch.cat(predicted)


def _is_right(predicted: Tensor) -> Tensor:  # (T, N, Q) -> (T, N, Q)
    return (predicted == torch.arange(predicted.shape[1])[:, None]).float()
